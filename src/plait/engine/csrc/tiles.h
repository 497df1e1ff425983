// Tiles of a product of float32: TILE rows by 16 columns, which are in registers while the depth passes by.
#pragma once
#include "lanes.h"

namespace plait {

constexpr int64_t WIDE = 16; // columns of a tile

PLAIT_INLINE int64_t whole(int64_t n) { return (n + WIDE - 1) / WIDE * WIDE; }

PLAIT_INLINE Lanes load_kept(const float *p) { return load(p); }
PLAIT_INLINE Lanes load_kept(const uint16_t *p) { return load_bfloat(p); }

// Asks for n numbers of memory while something else is computed: the machine does not expect where they lie.
template <class T> PLAIT_INLINE void fetch(const T *p, int64_t n) {
    for (int64_t i = 0; i < n; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(p + i, 0, 2);
}

// c (N, 16) = a (N, depth) b (depth, 16), or with `add` that more; a lies by rows or by columns.
template <int N, class T>
PLAIT_INLINE void multiply_tile(const float *a, int64_t a_row, int64_t a_column, const T *b, int64_t b_row, int64_t depth,
                                float *c, int64_t c_row, bool add) {
    Lanes sums[N];
    times<N>([&](auto i) { sums[i] = add ? load(c + i * c_row) : broadcast(0.f); });
    for (int64_t k = 0; k < depth; ++k, a += a_column, b += b_row) {
        Lanes row = load_kept(b);
        times<N>([&](auto i) { sums[i] = fma(broadcast(a[i * a_row]), row, sums[i]); });
    }
    times<N>([&](auto i) { store(c + i * c_row, sums[i]); });
}

// The same for n rows, at most TILE.
template <int N = TILE>
void tile(int64_t n, const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t b_row, int64_t depth, float *c,
          int64_t c_row, bool add) {
    if constexpr (N > 1)
        if (n < N) return tile<N - 1>(n, a, a_row, a_column, b, b_row, depth, c, c_row, add);
    multiply_tile<N>(a, a_row, a_column, b, b_row, depth, c, c_row, add);
}

} // namespace plait
