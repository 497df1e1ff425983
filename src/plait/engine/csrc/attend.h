// Attention over pages: softmax(cap(scale * Q K^T) + bias) V, for one row of each sequence and for hundreds alike.
//
// A tile is some rows of one sequence and the query heads that share one key head; each pair of row and head is a line
// of it. All lines read the same keys, as all rows of activations read the same weights:
//
//   scores (lines, 16)  =   queries (lines, d)   x  keys of a page (d, 16)
//   mix (lines, D)      +=  scores (lines, 16)   x  values of a page (16, D)        D is d rounded up to 16
//
// Keys are cut into blocks at fixed places. Each block gives a greatest score, a sum of exponentials and a mix of its own,
// and these are joined one after the other (Milakov and Gimelshein 2018), so that a row's sum is made in the same order
// whatever rows are beside it. Where tiles are too few to keep all members busy, the blocks of a tile are divided among
// them, and the last one to be done joins what all have made.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "rows.h"

namespace plait {

constexpr int64_t BLOCK = 8 * PAGE;  // keys
constexpr int64_t LINES = 24;        // of a tile, where the heads of one row are not more
constexpr float NOTHING = -1e30f;    // the greatest of no scores
constexpr float HIDDEN = -3e38f;     // the score of what may not be seen: so far below that its exponential is 0

struct Line { int64_t row, head, begin, end; }; // of keys that it sees

// What a line makes of some keys: the greatest score, the sum of exponentials, and D sums of weighted values behind them.
struct Sum {
    float most, total;
    float *mix() { return (float *)(this + 1); }
    static constexpr int64_t floats = 2;
};

PLAIT_INLINE Lanes load_kept(const float *p) { return load(p); }
PLAIT_INLINE Lanes load_kept(const uint16_t *p) { return load_bfloat(p); }

// c (N, 16) = or += a (N, depth) x b (depth, 16)
template <int N, class T>
void multiply(const float *a, int64_t lda, const T *b, int64_t ldb, int64_t depth, float *c, int64_t ldc, bool add) {
    Lanes sums[N];
    PLAIT_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = add ? load(c + i * ldc) : broadcast(0.f);
    for (int64_t k = 0; k < depth; ++k) {
        Lanes row = load_kept(b + k * ldb);
        PLAIT_UNROLL
        for (int i = 0; i < N; ++i) sums[i] = fma(broadcast(a[i * lda + k]), row, sums[i]);
    }
    PLAIT_UNROLL
    for (int i = 0; i < N; ++i) store(c + i * ldc, sums[i]);
}

// The same for n lines, up to N at a time.
template <int N, class T>
void multiply(int64_t n, const float *a, int64_t lda, const T *b, int64_t ldb, int64_t depth, float *c, int64_t ldc, bool add) {
    for (; n >= N; n -= N, a += N * lda, c += N * ldc) multiply<N>(a, lda, b, ldb, depth, c, ldc, add);
    if constexpr (N > 1) {
        if (n > 0) multiply<N - 1>(n, a, lda, b, ldb, depth, c, ldc, add);
    }
}

// How the work of one attention is cut.
struct Cut {
    int64_t group, D, rows, lines, tiles, blocks, parts; // rows and lines of a tile; blocks of the longest sequence
    int64_t sum_floats, done;                            // of one Sum; `done`: a count for every tile that is divided

    Cut(const Attend &o, const Pass &pass, int64_t members) {
        group = o.heads / o.kv_heads;
        D = (o.d_head + PAGE - 1) / PAGE * PAGE;
        rows = pass.rows == pass.n_sequences ? 1 : std::max<int64_t>(1, LINES / group);
        lines = rows * group;
        tiles = (pass.rows + rows - 1) / rows * o.kv_heads;
        sum_floats = Sum::floats + D;
        blocks = 1, parts = 1;
        if (members > 1 && tiles < 4 * members) { // until all have as much to do, if there are enough blocks
            int64_t longest = 0;
            for (int64_t i = 0; i < pass.n_sequences; ++i) longest = std::max<int64_t>(longest, pass.spaces[o.space].lengths[i]);
            blocks = std::max<int64_t>(1, (longest + BLOCK - 1) / BLOCK);
            while (tiles * parts % members && tiles * parts < 4 * members && parts < blocks) ++parts;
        }
    }
    int64_t member_floats(const Attend &o) const { // of queries, scores, lines, and sums: so far and of a block
        return lines * (o.d_head + BLOCK + int64_t(sizeof(Line) / sizeof(float)) + 2 * sum_floats);
    }
    int64_t shared_floats() const { return parts == 1 ? 0 : tiles * (1 + blocks * lines * sum_floats); }
};
