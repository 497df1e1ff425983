// 16 lanes with AVX2, FMA and F16C: two registers of 8. Included by lanes.h, which says what each is.
constexpr const char *BACKEND = "avx2";
constexpr int TILE = 6, TILE_BF16 = 5, TILE_INT = 4; // rows of activations at a time: two registers of sums each, of 16

struct Lanes { __m256 a, b; };
struct Ints { __m256i a, b; };
struct Pairs { __m256i a, b; };
struct Quads { __m256i a, b; };
struct QuadSum { __m256i a, b; }; // 16 rows x 2, int16: 8 quads of a group fit, |15 * 128 * 2 * 8| = 30720

PLAIT_INLINE Lanes load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
PLAIT_INLINE void store(float *p, Lanes x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
PLAIT_INLINE Lanes broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
PLAIT_INLINE Lanes operator+(Lanes x, Lanes y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
PLAIT_INLINE Lanes operator-(Lanes x, Lanes y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
PLAIT_INLINE Lanes operator*(Lanes x, Lanes y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
PLAIT_INLINE Lanes operator/(Lanes x, Lanes y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
PLAIT_INLINE Lanes fma(Lanes x, Lanes y, Lanes z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
PLAIT_INLINE Lanes max(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
PLAIT_INLINE Lanes min(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
PLAIT_INLINE Lanes round(Lanes x) { return {_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)}; }
PLAIT_INLINE Lanes power_of_two(Lanes n) {
    auto power = [](__m256 x) {
        __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
        return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
    };
    return {power(n.a), power(n.b)};
}
PLAIT_INLINE Lanes zero_below(Lanes x, Lanes least, Lanes y) {
    return {_mm256_and_ps(_mm256_cmp_ps(x.a, least.a, _CMP_NLT_UQ), y.a),
            _mm256_and_ps(_mm256_cmp_ps(x.b, least.b, _CMP_NLT_UQ), y.b)};
}
PLAIT_INLINE float sum(Lanes x) {
    __m256 s = _mm256_add_ps(x.a, x.b);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
PLAIT_INLINE float greatest(Lanes x) {
    __m256 s = _mm256_max_ps(x.a, x.b);
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}
PLAIT_INLINE Lanes load_half(const void *p) {
    auto q = (const __m128i *)p;
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
PLAIT_INLINE Lanes load_bfloat(const void *p) {
    auto wide = [](const __m128i *q) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), 16));
    };
    return {wide((const __m128i *)p), wide((const __m128i *)p + 1)};
}
PLAIT_INLINE void load_bfloat_pairs(const void *p, Lanes &even, Lanes &odd) {
    __m256i a = _mm256_loadu_si256((const __m256i *)p), b = _mm256_loadu_si256((const __m256i *)p + 1);
    __m256 high = _mm256_castsi256_ps(_mm256_set1_epi32(int(0xffff0000)));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
    odd = {_mm256_and_ps(_mm256_castsi256_ps(a), high), _mm256_and_ps(_mm256_castsi256_ps(b), high)};
}
PLAIT_INLINE Lanes to_float(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
PLAIT_INLINE Pairs load_pairs(const int8_t *p) {
    auto q = (const __m128i *)p;
    return {_mm256_cvtepi8_epi16(_mm_loadu_si128(q)), _mm256_cvtepi8_epi16(_mm_loadu_si128(q + 1))};
}
PLAIT_INLINE Ints add_dot(Ints s, Pairs w, int32_t x) {
    __m256i both = _mm256_set1_epi32(x);
    s = {_mm256_add_epi32(s.a, _mm256_madd_epi16(w.a, both)), _mm256_add_epi32(s.b, _mm256_madd_epi16(w.b, both))};
    asm("" : "+x"(s.a), "+x"(s.b)); // else gcc collects the products of many rows first, and runs out of registers
    return s;
}
PLAIT_INLINE void load_quads(const uint8_t *p, Quads &low, Quads &high) {
    __m256i a = _mm256_loadu_si256((const __m256i *)p), b = _mm256_loadu_si256((const __m256i *)p + 1);
    __m256i mask = _mm256_set1_epi8(15);
    low = {_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)};
    high = {_mm256_and_si256(_mm256_srli_epi16(a, 4), mask), _mm256_and_si256(_mm256_srli_epi16(b, 4), mask)};
}
PLAIT_INLINE QuadSum add_dot(QuadSum s, Quads w, int32_t x) {
    __m256i four = _mm256_set1_epi32(x);
    s = {_mm256_add_epi16(s.a, _mm256_maddubs_epi16(w.a, four)), _mm256_add_epi16(s.b, _mm256_maddubs_epi16(w.b, four))};
    asm("" : "+x"(s.a), "+x"(s.b)); // else gcc collects the products of many rows first, and runs out of registers
    return s;
}
PLAIT_INLINE Ints total(QuadSum s) {
    __m256i one = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(s.a, one), _mm256_madd_epi16(s.b, one)};
}
