// Vectors of 16 lanes, in three backends: AVX-512 with VNNI, AVX2, and portable C++ that compilers turn into what the
// machine has. One is chosen by PLAIT_AVX512 or PLAIT_AVX2 at compile time; the library is built once for each.
//
// Only what products and attention need is here. Nothing is contracted behind our back (-ffp-contract=off): what is
// fused says fma, so that the backends differ by the rounding of a few known operations, and integer sums not at all.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(PLAIT_SIMDE) // AVX-512 acted out on another machine, for tests
#include "simde_lanes.h"
#elif defined(PLAIT_AVX512) || defined(PLAIT_AVX2)
#include <immintrin.h>
#endif

#define PLAIT_INLINE inline __attribute__((always_inline))

namespace plait {

template <class To, class From> PLAIT_INLINE To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits are kept");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// f(0), f(1), ..., f(N-1), with constants, so that arrays of sums are registers: a loop, even one that is unrolled later,
// keeps them in memory where the body is long.
template <class F, int... I> PLAIT_INLINE void times_each(F f, std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>{}), ...);
}
template <int N, class F> PLAIT_INLINE void times(F f) { times_each(f, std::make_integer_sequence<int, N>{}); }

// Four bytes of quantised inputs, as one number to broadcast.
PLAIT_INLINE int32_t word(const void *p) {
    int32_t w;
    std::memcpy(&w, p, sizeof w);
    return w;
}

PLAIT_INLINE float bfloat(uint16_t b) { return bits<float>(uint32_t(b) << 16); }

// Nearest even; what is no number stays none.
PLAIT_INLINE uint16_t to_bfloat(float x) {
    uint32_t u = bits<uint32_t>(x);
    if ((u & 0x7fffffff) > 0x7f800000) return uint16_t(u >> 16 | 64);
    return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

PLAIT_INLINE float half(uint16_t h) {
    uint32_t magnitude = uint32_t(h & 0x7fff) << 13, sign = uint32_t(h & 0x8000) << 16;
    // Move the exponent by the difference of the biases in a product, which also makes subnormal numbers normal.
    float value = bits<float>(magnitude) * bits<float>(uint32_t(254 - 15) << 23);
    uint32_t u = magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : bits<uint32_t>(value);
    return bits<float>(u | sign);
}

#if defined(PLAIT_AVX512)
#include "lanes_avx512.h"
#elif defined(PLAIT_AVX2)
#include "lanes_avx2.h"
#else
#include "lanes_portable.h"
#endif

// What every backend has:
//   Lanes                 16 x float32: load, store, broadcast, + - * /, fma(a, b, c) = a * b + c, max, min (the second
//                         where either is no number), round (nearest even), sum, greatest; load_half, load_bfloat
//   load_bfloat_pairs     64 bytes of a BF16 panel: 16 rows of an even and of the next, odd input
//   Pairs, load_pairs     32 bytes of an I8 panel: 16 rows x 2 inputs; add_dot(Ints, Pairs, two int16 activations)
//   Quads, load_quads     64 bytes of an I4 panel: 16 rows x 4 inputs, low and high halves;
//                         add_dot(QuadSum, Quads, four int8 activations), at most 8 times before total(QuadSum) -> Ints

PLAIT_INLINE Lanes operator-(Lanes x) { return broadcast(-0.f) - x; }

// The first n lanes; the others are zero, and are not written.
PLAIT_INLINE Lanes load(const float *p, int64_t n) {
    if (n >= 16) return load(p);
    float some[16] = {};
    for (int64_t i = 0; i < n; ++i) some[i] = p[i];
    return load(some);
}

PLAIT_INLINE void store(float *p, Lanes x, int64_t n) {
    if (n >= 16) return store(p, x);
    float some[16];
    store(some, x);
    for (int64_t i = 0; i < n; ++i) p[i] = some[i];
}

PLAIT_INLINE Lanes clamp(Lanes x, float low, float high) { return min(broadcast(high), max(broadcast(low), x)); }

template <int N> PLAIT_INLINE Lanes polynomial(Lanes x, const float (&c)[N]) { // the highest power first
    Lanes y = broadcast(c[0]);
    for (int i = 1; i < N; ++i) y = fma(y, x, broadcast(c[i]));
    return y;
}

// To 2 units in the last place; 0 below -87.3, where float32 ends, and so for minus infinity (Cephes' expf).
PLAIT_INLINE Lanes exp(Lanes x) {
    Lanes y = clamp(x, -87.3f, 88.3f), n = round(y * broadcast(1.44269504f));
    y = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), y)); // ln 2, in two pieces
    constexpr float C[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f};
    Lanes e = fma(polynomial(y, C), y * y, y + broadcast(1.f));
    return zero_below(x, broadcast(-87.3f), e * power_of_two(n));
}

PLAIT_INLINE Lanes sigmoid(Lanes x) { return broadcast(1.f) / (broadcast(1.f) + exp(-x)); }

// Odd rational functions over even ones, as in Eigen; both to a few units in the last place.
PLAIT_INLINE Lanes tanh(Lanes x) {
    constexpr float P[] = {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f,
                           1.48572235717979e-05f,  6.37261928875436e-04f, 4.89352455891786e-03f};
    constexpr float Q[] = {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f};
    Lanes y = clamp(x, -9.f, 9.f), z = y * y;
    return y * polynomial(z, P) / polynomial(z, Q);
}

PLAIT_INLINE Lanes erf(Lanes x) {
    constexpr float P[] = {-2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
                           -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f};
    constexpr float Q[] = {-1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f,
                           -1.42647390514189e-02f};
    Lanes y = clamp(x, -4.f, 4.f), z = y * y;
    return y * polynomial(z, P) / polynomial(z, Q);
}

} // namespace plait
