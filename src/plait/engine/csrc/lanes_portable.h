// 16 lanes in portable C++: four vectors of 16 bytes, which gcc and clang turn into SSE2, NEON or plain code. Included
// by lanes.h, which says what each is.
constexpr const char *BACKEND = "portable";
#if defined(__aarch64__)
constexpr int TILE = 4, TILE_BF16 = 4, TILE_INT = 4; // rows of activations at a time: four registers of sums each, of 32
#else
constexpr int TILE = 2, TILE_BF16 = 2, TILE_INT = 2; // the same, of 16
#endif

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

struct Lanes { Float4 v[4]; };
struct Ints { Int4 v[4]; };
struct Pairs { Int4 even[4], odd[4]; };
struct Quads { Int4 v[4]; }; // four bytes in every lane
using QuadSum = Ints;

template <class Vectors, class F> PLAIT_INLINE Vectors each(F f) { return {{f(0), f(1), f(2), f(3)}}; }

PLAIT_INLINE Lanes load(const float *p) {
    Lanes x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
PLAIT_INLINE void store(float *p, Lanes x) { std::memcpy(p, &x, sizeof x); }
PLAIT_INLINE Lanes broadcast(float x) {
    return each<Lanes>([=](int) { return Float4{x, x, x, x}; });
}
PLAIT_INLINE Lanes operator+(Lanes x, Lanes y) {
    return each<Lanes>([&](int i) { return x.v[i] + y.v[i]; });
}
PLAIT_INLINE Lanes operator-(Lanes x, Lanes y) {
    return each<Lanes>([&](int i) { return x.v[i] - y.v[i]; });
}
PLAIT_INLINE Lanes operator*(Lanes x, Lanes y) {
    return each<Lanes>([&](int i) { return x.v[i] * y.v[i]; });
}
PLAIT_INLINE Lanes operator/(Lanes x, Lanes y) {
    return each<Lanes>([&](int i) { return x.v[i] / y.v[i]; });
}
PLAIT_INLINE Lanes fma(Lanes x, Lanes y, Lanes z) { return x * y + z; }
PLAIT_INLINE Float4 select(Int4 mask, Float4 x, Float4 y) { return (Float4)(((Int4)x & mask) | ((Int4)y & ~mask)); }
PLAIT_INLINE Lanes max(Lanes x, Lanes y) {
    return each<Lanes>([&](int i) { return select(x.v[i] > y.v[i], x.v[i], y.v[i]); });
}
PLAIT_INLINE Lanes min(Lanes x, Lanes y) {
    return each<Lanes>([&](int i) { return select(x.v[i] < y.v[i], x.v[i], y.v[i]); });
}
PLAIT_INLINE Lanes round(Lanes x) { return (x + broadcast(12582912.f)) - broadcast(12582912.f); } // 1.5 * 2^23
PLAIT_INLINE Lanes power_of_two(Lanes n) {
    return each<Lanes>([&](int i) { return (Float4)((__builtin_convertvector(n.v[i], Int4) + 127) << 23); });
}
PLAIT_INLINE Lanes zero_below(Lanes x, Lanes least, Lanes y) {
    return each<Lanes>([&](int i) { return (Float4)((Int4)y.v[i] & ~(Int4)(x.v[i] < least.v[i])); });
}
PLAIT_INLINE float sum(Lanes x) {
    Float4 s = (x.v[0] + x.v[1]) + (x.v[2] + x.v[3]);
    return (s[0] + s[1]) + (s[2] + s[3]);
}
PLAIT_INLINE float greatest(Lanes x) {
    float most = x.v[0][0];
    for (int i = 1; i < 16; ++i) most = std::fmax(most, x.v[i / 4][i % 4]);
    return most;
}
PLAIT_INLINE Lanes load_half(const void *p) {
    uint16_t h[16];
    std::memcpy(h, p, sizeof h);
    return each<Lanes>([&](int i) {
        return Float4{half(h[4 * i]), half(h[4 * i + 1]), half(h[4 * i + 2]), half(h[4 * i + 3])};
    });
}
PLAIT_INLINE Lanes load_bfloat(const void *p) {
    uint16_t h[16];
    std::memcpy(h, p, sizeof h);
    return each<Lanes>([&](int i) {
        return (Float4)(Int4{h[4 * i], h[4 * i + 1], h[4 * i + 2], h[4 * i + 3]} << 16);
    });
}
PLAIT_INLINE void load_bfloat_pairs(const void *p, Lanes &even, Lanes &odd) {
    Ints both;
    std::memcpy(&both, p, sizeof both);
    even = each<Lanes>([&](int i) { return (Float4)(both.v[i] << 16); });
    odd = each<Lanes>([&](int i) { return (Float4)(both.v[i] & int(0xffff0000)); });
}
PLAIT_INLINE Lanes to_float(Ints x) {
    return each<Lanes>([&](int i) { return __builtin_convertvector(x.v[i], Float4); });
}
PLAIT_INLINE Pairs load_pairs(const int8_t *p) {
    int16_t both[16];
    std::memcpy(both, p, sizeof both);
    Pairs w;
    for (int i = 0; i < 4; ++i) {
        Int4 wide = {both[4 * i], both[4 * i + 1], both[4 * i + 2], both[4 * i + 3]};
        w.even[i] = (wide << 24) >> 24;
        w.odd[i] = wide >> 8;
    }
    return w;
}
PLAIT_INLINE Ints add_dot(Ints s, Pairs w, int32_t x) {
    int32_t even = int16_t(x), odd = x >> 16;
    return each<Ints>([&](int i) { return s.v[i] + w.even[i] * even + w.odd[i] * odd; });
}
PLAIT_INLINE void load_quads(const uint8_t *p, Quads &low, Quads &high) {
    Ints both;
    std::memcpy(&both, p, sizeof both);
    low = each<Quads>([&](int i) { return both.v[i] & 0x0f0f0f0f; });
    high = each<Quads>([&](int i) { return both.v[i] >> 4 & 0x0f0f0f0f; });
}
PLAIT_INLINE Ints add_dot(Ints s, Quads w, int32_t x) {
    int32_t a = int8_t(x), b = int8_t(x >> 8), c = int8_t(x >> 16), d = x >> 24;
    return each<Ints>([&](int i) {
        Int4 q = w.v[i];
        return s.v[i] + (q & 15) * a + (q >> 8 & 15) * b + (q >> 16 & 15) * c + (q >> 24) * d;
    });
}
PLAIT_INLINE Ints total(QuadSum s) { return s; }
