// AVX-512 acted out by SIMDe (https://github.com/simd-everywhere/simde) on machines that do not have it, with what its
// version 0.7 lacks: for tests alone, never shipped.
#pragma once
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

template <class To, class From, class F> inline To acted(From from, F f) {
    To to;
    decltype(f(from, 0)) out[16];
    for (int i = 0; i < 16; ++i) out[i] = f(from, i);
    std::memcpy(&to, out, sizeof to);
    return to;
}

template <class Number, class Vector> inline Number lane(Vector x, int i) {
    Number numbers[sizeof x / sizeof(Number)];
    std::memcpy(numbers, &x, sizeof x);
    return numbers[i];
}

inline float acted_reduce(simde__m512 x, float (*f)(float, float)) {
    float halves[16];
    std::memcpy(halves, &x, sizeof halves);
    for (int n = 8; n; n /= 2)
        for (int i = 0; i < n; ++i) halves[i] = f(halves[i], halves[i + n]);
    return halves[0];
}

#define _mm512_reduce_add_ps(x) acted_reduce(x, [](float a, float b) { return a + b; })
#define _mm512_reduce_max_ps(x) acted_reduce(x, [](float a, float b) { return a > b ? a : b; })
#define _mm512_cvtepi32_ps(x) acted<simde__m512>(x, [](simde__m512i v, int i) { return float(lane<int32_t>(v, i)); })
#define _mm512_cvtps_epi32(x) \
    acted<simde__m512i>(x, [](simde__m512 v, int i) { return _mm_cvtss_si32(_mm_set_ss(lane<float>(v, i))); })
#define _mm512_cvtepu16_epi32(x) \
    acted<simde__m512i>(x, [](__m256i v, int i) { return int32_t(lane<uint16_t>(v, i)); })
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(x) \
    acted<simde__m512>(x, [](__m256i v, int i) { return _cvtsh_ss(lane<uint16_t>(v, i)); })
