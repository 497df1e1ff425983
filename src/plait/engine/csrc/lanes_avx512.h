// 16 lanes with AVX-512 (F, BW, VL, DQ) and VNNI: one register. Included by lanes.h, which says what each is.
constexpr const char *BACKEND = "avx512";
constexpr int TILE = 12, TILE_BF16 = 12, TILE_INT = 12; // rows of activations at a time: 12 sums, and 32 registers

struct Lanes { __m512 v; };
struct Ints { __m512i v; };                        // 16 x int32
struct Pairs { __m512i v; };                       // 16 rows x 2 inputs, int16
struct Quads { __m512i v; };                       // 16 rows x 4 inputs, uint8
using QuadSum = Ints;

PLAIT_INLINE Lanes load(const float *p) { return {_mm512_loadu_ps(p)}; }
PLAIT_INLINE void store(float *p, Lanes a) { _mm512_storeu_ps(p, a.v); }
PLAIT_INLINE Lanes broadcast(float x) { return {_mm512_set1_ps(x)}; }
PLAIT_INLINE Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
PLAIT_INLINE Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
PLAIT_INLINE Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
PLAIT_INLINE Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
PLAIT_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
PLAIT_INLINE Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; } // b where either is no number
PLAIT_INLINE Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
PLAIT_INLINE Lanes round(Lanes a) { return {_mm512_roundscale_ps(a.v, 8)}; }
PLAIT_INLINE Lanes power_of_two(Lanes n) { // of whole numbers from -127 to 127
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23))};
}
PLAIT_INLINE Lanes zero_below(Lanes x, Lanes least, Lanes y) { // y where x >= least or is no number
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, least.v, _CMP_NLT_UQ), y.v)};
}
PLAIT_INLINE float sum(Lanes a) { return _mm512_reduce_add_ps(a.v); }
PLAIT_INLINE float greatest(Lanes a) { return _mm512_reduce_max_ps(a.v); }
PLAIT_INLINE Lanes load_half(const void *p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p))}; }
PLAIT_INLINE Lanes load_bfloat(const void *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
PLAIT_INLINE void load_bfloat_pairs(const void *p, Lanes &even, Lanes &odd) {
    __m512i both = _mm512_loadu_si512(p);
    even.v = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    odd.v = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(int(0xffff0000))));
}
PLAIT_INLINE Lanes to_float(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
PLAIT_INLINE Pairs load_pairs(const int8_t *p) { return {_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p))}; }
PLAIT_INLINE Ints add_dot(Ints s, Pairs w, int32_t x) { return {_mm512_dpwssd_epi32(s.v, w.v, _mm512_set1_epi32(x))}; }
PLAIT_INLINE void load_quads(const uint8_t *p, Quads &low, Quads &high) {
    __m512i both = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
    low.v = _mm512_and_si512(both, mask);
    high.v = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
}
PLAIT_INLINE Ints add_dot(Ints s, Quads w, int32_t x) { return {_mm512_dpbusd_epi32(s.v, w.v, _mm512_set1_epi32(x))}; }
PLAIT_INLINE Ints total(QuadSum s) { return s; }
