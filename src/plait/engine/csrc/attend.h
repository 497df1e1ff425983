// Attention over pages: softmax(cap(scale * Q K^T) + bias) V, for one row of each sequence and for hundreds alike.
//
// A tile is some rows of one sequence and the query heads that share one key head; each pair of row and head is a line
// of it. All lines read the same keys, as all rows of activations read the same weights:
//
//   scores (lines, 16)  =   queries (lines, d)   x  keys of a page (d, 16)
//   mix (lines, D)      +=  scores (lines, 16)   x  values of a page (16, D)        D is d rounded up to 16
//
// Keys are cut into blocks at fixed places. Each block gives a greatest score, a sum of exponentials and a mix of its own,
// and these are joined one after the other (Milakov and Gimelshein 2018): a row's sums are made in the same order whatever
// rows are beside it. Where tiles are too few to keep all members busy, the blocks of a tile are divided among them, and
// the last one to be done joins what all have made.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "rows.h"

namespace plait {

constexpr int64_t BLOCK = 8 * PAGE; // keys
constexpr int64_t LINES = 24;       // of a tile, where the heads of one row are not more
constexpr float NOTHING = -1e30f;   // the greatest of no scores
constexpr float HIDDEN = -3e38f;    // the score of what may not be seen: so far below that its exponential is 0

PLAIT_INLINE Lanes load_kept(const float *p) { return load(p); }
PLAIT_INLINE Lanes load_kept(const uint16_t *p) { return load_bfloat(p); }

// c (N, 16) = a (N, depth) x b (depth, 16), or with `add` that more
template <int N, class T>
void multiply(const float *a, int64_t a_stride, const T *b, int64_t b_stride, int64_t depth, float *c, int64_t c_stride, bool add) {
    Lanes sums[N];
    times<N>([&](auto i) { sums[i] = add ? load(c + i * c_stride) : broadcast(0.f); });
    for (int64_t k = 0; k < depth; ++k) {
        Lanes row = load_kept(b + k * b_stride);
        times<N>([&](auto i) { sums[i] = fma(broadcast(a[i * a_stride + k]), row, sums[i]); });
    }
    times<N>([&](auto i) { store(c + i * c_stride, sums[i]); });
}

// The same for n lines, N at a time.
template <int N, class T>
void multiply_lines(int64_t n, const float *a, int64_t a_stride, const T *b, int64_t b_stride, int64_t depth, float *c,
                    int64_t c_stride, bool add) {
    for (; n >= N; n -= N, a += N * a_stride, c += N * c_stride) multiply<N>(a, a_stride, b, b_stride, depth, c, c_stride, add);
    if constexpr (N > 1) {
        if (n > 0) multiply_lines<N - 1>(n, a, a_stride, b, b_stride, depth, c, c_stride, add);
    }
}

// How the work of one attention is cut, and the memory that takes, in floats.
struct Cut {
    int64_t group, D, rows, lines, tiles; // rows and lines of a tile
    int64_t blocks = 1, parts = 1;        // of the longest sequence; into which its tiles are divided
    int64_t sum;                          // of a line: D sums of weighted values, the greatest score, the sum of exponentials

    Cut(const Attend &o, const Pass &pass, int64_t members) {
        group = o.heads / o.kv_heads;
        D = (o.d_head + PAGE - 1) / PAGE * PAGE;
        rows = pass.rows == pass.n_sequences ? 1 : std::max<int64_t>(1, LINES / group);
        lines = rows * group;
        tiles = (pass.rows + rows - 1) / rows * o.kv_heads;
        sum = D + PAGE;
        if (members == 1 || tiles >= 4 * members) return;
        int64_t longest = 1;
        for (int64_t i = 0; i < pass.n_sequences; ++i) longest = std::max<int64_t>(longest, pass.spaces[o.space].lengths[i]);
        blocks = (longest + BLOCK - 1) / BLOCK;
        while (tiles * parts % members && tiles * parts < 4 * members && parts < blocks) ++parts; // until all have as much
    }
    int64_t member_floats(const Attend &o) const { return lines * (o.d_head + BLOCK + 2 * sum); }
    int64_t shared_floats() const { return parts == 1 ? 0 : tiles * blocks * lines * sum; }
};

// Some rows of a sequence with one key head, under way.
struct Tile {
    const Attend &o;
    const Pass &pass;
    const Held &held;
    const Cut &cut;
    int64_t sequence, first_row, lines, kv_head;
    float *queries, *scores; // (lines, d), (lines, BLOCK)

    int64_t row(int64_t line) const { return first_row + line / cut.group; }
    int64_t head(int64_t line) const { return kv_head * cut.group + line % cut.group; }
    // The keys that a line sees are from `begin` to `end`.
    int64_t begin(int64_t line) const {
        int64_t order = pass.orders[row(line)];
        return o.window ? std::max<int64_t>(0, o.causal ? order - o.window + 1 : order - o.window) : 0;
    }
    int64_t end(int64_t line) const {
        int64_t order = pass.orders[row(line)], end = held.lengths[sequence];
        return o.causal ? std::min(end, order + 1) : o.window ? std::min(end, order + o.window + 1) : end;
    }
    // Blocks of which some line sees something; orders ascend with the rows.
    int64_t first_block() const { return begin(0) / BLOCK; }
    int64_t last_block() const { return (end(lines - 1) + BLOCK - 1) / BLOCK; }
};

// What is added to the scores of 16 keys by how far they are.
inline void add_bias(const Attend &o, int64_t head, const int32_t *keys, int32_t query, float *scores) {
    if (o.slopes) {
        for (int j = 0; j < PAGE; ++j) scores[j] -= o.slopes[head] * float(std::abs(keys[j] - query));
    }
    if (o.relative) {
        const float *table = o.relative + head * (2 * o.reach + 1) + o.reach;
        for (int j = 0; j < PAGE; ++j) scores[j] += table[std::clamp<int64_t>(keys[j] - query, -o.reach, o.reach)];
    }
}

// Scores of a line with pages first..last become exponentials; what is over them goes into its sum.
inline void weigh(const Tile &t, int64_t line, int64_t first, int64_t last, float *scores, float *sums) {
    const Attend &o = t.o;
    const int32_t *table = t.held.tables[t.sequence];
    const int64_t begin = t.begin(line), end = t.end(line);
    Lanes top = broadcast(NOTHING), total = broadcast(0.f);
    for (int64_t p = first; p < last; ++p) {
        float *s = scores + (p - first) * PAGE;
        if (o.softcap != 0.f) store(s, tanh(load(s) * broadcast(1.f / o.softcap)) * broadcast(o.softcap));
        if (o.slopes || o.relative)
            add_bias(o, t.head(line), t.held.positions + table[p] * PAGE, t.pass.positions[t.row(line)], s);
        const int64_t from = begin - p * PAGE, to = end - p * PAGE;
        if (from > 0 || to < PAGE) {
            for (int64_t j = 0; j < PAGE; ++j) s[j] = j < from || j >= to ? HIDDEN : s[j];
        }
        top = max(top, load(s));
    }
    const float most = greatest(top);
    for (int64_t j = 0; j < (last - first) * PAGE; j += PAGE) {
        Lanes e = exp(load(scores + j) - broadcast(most));
        store(scores + j, e);
        total = total + e;
    }
    sums[t.cut.D] = most;
    sums[t.cut.D + 1] = sum(total);
}

// The sums of all lines over one block of keys.
template <class T> void attend_block(const Tile &t, int64_t block, float *sums) {
    const int32_t *table = t.held.tables[t.sequence];
    const int64_t d = t.o.d_head, D = t.cut.D, length = t.held.lengths[t.sequence];
    const int64_t first = block * (BLOCK / PAGE), last = std::min(first + BLOCK / PAGE, (length + PAGE - 1) / PAGE);
    auto keys = (const T *)t.held.keys[t.o.layer], values = (const T *)t.held.values[t.o.layer];
    for (int64_t p = first; p < last; ++p) {
        const T *page = keys + (table[p] * t.o.kv_heads + t.kv_head) * d * PAGE;
        multiply_lines<TILE>(t.lines, t.queries, d, page, PAGE, d, t.scores + (p - first) * PAGE, BLOCK, false);
    }
    for (int64_t i = 0; i < t.lines; ++i) weigh(t, i, first, last, t.scores + i * BLOCK, sums + i * t.cut.sum);
    for (int64_t p = first; p < last; ++p) {
        const T *page = values + (table[p] * t.o.kv_heads + t.kv_head) * PAGE * D;
        const int64_t depth = std::min(PAGE, length - p * PAGE); // what lies beyond the length may be no number
        for (int64_t c = 0; c < D; c += PAGE) {
            multiply_lines<TILE>(t.lines, t.scores + (p - first) * PAGE, BLOCK, page + c, D, depth, sums + c, t.cut.sum, p > first);
        }
    }
}

// A line's sums so far, and those of its next block.
inline void join(int64_t D, float *sums, const float *next) {
    if (next[D] == NOTHING) return;
    const float most = std::max(sums[D], next[D]), old = std::exp(sums[D] - most), young = std::exp(next[D] - most);
    for (int64_t c = 0; c < D; c += PAGE)
        store(sums + c, fma(load(next + c), broadcast(young), load(sums + c) * broadcast(old)));
    sums[D] = most;
    sums[D + 1] = sums[D + 1] * old + next[D + 1] * young;
}

// Called by every member. `own`: memory of each; `shared`: of all, with `done`, zeros, for every tile that is divided.
inline void attend(const Attend &o, const Pass &pass, Worker &worker, Rows queries, Rows target, float *own, float *shared,
                   std::atomic<int32_t> *done) {
    const Cut cut(o, pass, worker.members);
    const int64_t d = o.d_head, D = cut.D;
    Tile t{o, pass, pass.spaces[o.space], cut, 0, 0, 0, 0, own, own + cut.lines * d};
    float *const sums = t.scores + cut.lines * BLOCK, *const next = sums + cut.lines * cut.sum;

    // f(at) for the rows of each sequence in a tile; `at`: their first line of the tile.
    auto by_sequence = [&](int64_t tile, auto f) {
        const int64_t first = tile / o.kv_heads * cut.rows, last = std::min(pass.rows, first + cut.rows);
        t.kv_head = tile % o.kv_heads;
        for (t.first_row = first; t.first_row < last; t.first_row += t.lines / cut.group) {
            t.sequence = pass.sequences[t.first_row];
            t.lines = (std::min<int64_t>(last, pass.begins[t.sequence + 1]) - t.first_row) * cut.group;
            f((t.first_row - first) * cut.group);
        }
    };
    auto take_queries = [&] {
        for (int64_t i = 0; i < t.lines; ++i) {
            const float *q = queries.row(t.row(i)) + t.head(i) * d;
            by_lanes(d, [&](int64_t c, int64_t left) { store(t.queries + i * d + c, load(q + c, left) * broadcast(o.scale), left); });
        }
    };
    auto see = [&](int64_t block, float *out) {
        t.held.bfloat ? attend_block<uint16_t>(t, block, out) : attend_block<float>(t, block, out);
    };
    auto put = [&](int64_t line, const float *sum) { // who sees nothing gets zeros
        const Lanes share = broadcast(sum[D] == NOTHING ? 0.f : 1.f / sum[D + 1]);
        float *y = target.row(t.row(line)) + t.head(line) * d;
        by_lanes(d, [&](int64_t c, int64_t left) { store(y + c, load(sum + c) * share, left); });
    };
    auto begin_sum = [&](float *sum) {
        std::fill_n(sum, cut.sum, 0.f);
        sum[D] = NOTHING;
    };

    auto whole = [&](int64_t) {
        take_queries();
        for (int64_t i = 0; i < t.lines; ++i) begin_sum(sums + i * cut.sum);
        for (int64_t block = t.first_block(); block < t.last_block(); ++block) {
            see(block, next);
            for (int64_t i = 0; i < t.lines; ++i) join(D, sums + i * cut.sum, next + i * cut.sum);
        }
        for (int64_t i = 0; i < t.lines; ++i) put(i, sums + i * cut.sum);
    };

    worker.share(cut.tiles * cut.parts, 1, [&](int64_t first, int64_t last) {
        for (int64_t item = first; item < last; ++item) {
            const int64_t at = cut.tiles * cut.parts - 1 - item; // the last rows see the most: they come first
            const int64_t tile = at / cut.parts, part = at % cut.parts;
            if (cut.parts == 1) {
                by_sequence(tile, whole);
                continue;
            }
            float *const kept = shared + tile * cut.blocks * cut.lines * cut.sum; // (blocks, lines, sum)
            auto kept_sum = [&](int64_t block, int64_t line) { return kept + (block * cut.lines + line) * cut.sum; };
            by_sequence(tile, [&](int64_t start) {
                take_queries();
                for (int64_t b = cut.blocks * part / cut.parts; b < cut.blocks * (part + 1) / cut.parts; ++b) {
                    if (b >= t.first_block() && b < t.last_block()) see(b, kept_sum(b, start));
                    else for (int64_t i = 0; i < t.lines; ++i) kept_sum(b, start + i)[D] = NOTHING;
                }
            });
            if (done[tile].fetch_add(1, std::memory_order_acq_rel) + 1 < cut.parts) continue;
            done[tile].store(0, std::memory_order_relaxed);
            by_sequence(tile, [&](int64_t start) {
                for (int64_t i = 0; i < t.lines; ++i) {
                    begin_sum(sums);
                    for (int64_t b = 0; b < cut.blocks; ++b) join(D, sums, kept_sum(b, start + i));
                    put(i, sums);
                }
            });
        }
    });
}

} // namespace plait
