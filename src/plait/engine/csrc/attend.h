// Attention over pages: softmax(cap(scale * Q K^T) + bias) V, for one row of each sequence and for hundreds alike.
//
// A tile is some rows and some key heads; each of its rows with each query head of those is a line. The lines of a key head
// read the same keys, as all rows of activations read the same weights:
//
//   scores (lines, 16)  =   queries (lines, d)   x  keys of a page (d, 16)
//   mix (lines, D)      +=  scores (lines, 16)   x  values of a page (16, D)        D is d rounded up to 16
//
// Keys are cut into blocks at fixed places. Each block gives a greatest score, a sum of exponentials and a mix of its own,
// and these are joined one after the other (Milakov and Gimelshein 2018): a row's sums are made in the same order whatever
// rows are beside it. Where tiles are too few to keep all members busy, they share out the blocks and key heads of every
// tile, and the last one to be done with it joins what all have made.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "rows.h"
#include "tiles.h"

namespace plait {

constexpr int64_t BLOCK = 8 * PAGE; // keys
constexpr int64_t LINES = 24;       // of a tile, where the heads of one row are not more
constexpr float NOTHING = -1e30f;   // the greatest of no scores
constexpr float HIDDEN = -3e38f;    // the score of what may not be seen: so far below that its exponential is 0

// c (n, 16) = a (n, depth) x b (depth, 16), N lines at a time.
template <int N, class T>
void multiply_lines(int64_t n, const float *a, int64_t a_stride, const T *b, int64_t b_stride, int64_t depth, float *c,
                    int64_t c_stride, bool add) {
    for (; n >= N; n -= N, a += N * a_stride, c += N * c_stride) multiply_tile<N>(a, a_stride, 1, b, b_stride, depth, c, c_stride, add);
    if constexpr (N > 1) {
        if (n > 0) multiply_lines<N - 1>(n, a, a_stride, b, b_stride, depth, c, c_stride, add);
    }
}

// How the work of one attention is cut, and the memory that takes, in floats.
struct Cut {
    int64_t group, D, sum;     // `sum`, of a line: D sums of weighted values, the greatest score, the sum of exponentials
    int64_t rows, kv_heads;    // of a tile
    int64_t lines, tiles;      // of a tile; of the pass
    int64_t blocks = 1;        // of the longest sequence
    bool divided;              // the tiles

    Cut(const Attend &o, const Pass &pass, int64_t members) {
        group = o.heads / o.kv_heads;
        D = (o.d_head + PAGE - 1) / PAGE * PAGE;
        sum = D + PAGE;
        rows = pass.rows == pass.n_sequences ? 1 : std::max<int64_t>(1, LINES / group);
        tiles = (pass.rows + rows - 1) / rows;
        divided = members > 1 && tiles * (rows == 1 ? 1 : o.kv_heads) < 4 * members;
        kv_heads = rows == 1 || divided ? o.kv_heads : 1; // of one row all: its pages are read as they lie
        tiles *= o.kv_heads / kv_heads;
        lines = rows * kv_heads * group;
        for (int64_t i = 0; divided && i < pass.n_sequences; ++i)
            blocks = std::max<int64_t>(blocks, (pass.spaces[o.space].lengths[i] + BLOCK - 1) / BLOCK);
    }
    int64_t member_floats(const Attend &o) const { return lines * (o.d_head + BLOCK + 2 * sum); }
    int64_t shared_floats() const { return divided ? tiles * blocks * lines * sum : 0; }
};

// Rows of a sequence with some key heads, under way. Lines go by key head, row and head of the group.
struct Tile {
    const Attend &o;
    const Pass &pass;
    const Held &held;
    const Cut &cut;
    float *queries, *scores; // (lines, d), (lines, BLOCK)
    int64_t sequence, first_row, rows, first_head, kv_heads;

    int64_t lines() const { return kv_heads * rows * cut.group; }
    int64_t row(int64_t line) const { return first_row + line / cut.group % rows; }
    int64_t head(int64_t line) const { return (first_head + line / (cut.group * rows)) * cut.group + line % cut.group; }
    // The keys that a row sees are from `begin` to `end`.
    int64_t begin(int64_t row) const {
        return o.window ? std::max<int64_t>(0, pass.orders[row] - o.window + (o.causal ? 1 : 0)) : 0;
    }
    int64_t end(int64_t row) const {
        const int64_t order = pass.orders[row], end = held.lengths[sequence];
        return o.causal ? std::min(end, order + 1) : o.window ? std::min(end, order + o.window + 1) : end;
    }
    // The blocks of which some row sees something; orders ascend with the rows.
    int64_t first_block() const { return begin(first_row) / BLOCK; }
    int64_t last_block() const { return (end(first_row + rows - 1) + BLOCK - 1) / BLOCK; }
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
inline void weigh(const Tile &t, int64_t line, int64_t first, int64_t last, float *scores, float *sum_) {
    const Attend &o = t.o;
    const int32_t *table = t.held.tables[t.sequence];
    const int64_t begin = t.begin(t.row(line)), end = t.end(t.row(line));
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
    sum_[t.cut.D] = most;
    sum_[t.cut.D + 1] = sum(total);
}

// The sums (lines, sum) over one block of keys. Pages of all heads are read in the order in which they lie.
template <class T> void attend_block(const Tile &t, int64_t block, float *sums) {
    const int32_t *table = t.held.tables[t.sequence];
    const int64_t d = t.o.d_head, D = t.cut.D, length = t.held.lengths[t.sequence], pages = (length + PAGE - 1) / PAGE;
    const int64_t first = block * (BLOCK / PAGE), last = std::min(first + BLOCK / PAGE, pages), n = t.rows * t.cut.group;
    auto page = [&](const void *const *layers, int64_t p, int64_t size) { // of a head `size` numbers
        return (const T *)layers[t.o.layer] + (table[p] * t.o.kv_heads + t.first_head) * size;
    };
    for (int64_t p = first; p < last; ++p) {
        const T *keys = page(t.held.keys, p, d * PAGE);
        float *scores = t.scores + (p - first) * PAGE;
        fetch(page(t.held.values, p, PAGE * D), PAGE * D * t.kv_heads);
        for (int64_t h = 0; h < t.kv_heads; ++h, keys += d * PAGE, scores += n * BLOCK)
            multiply_lines<TILE>(n, t.queries + h * n * d, d, keys, PAGE, d, scores, BLOCK, false);
    }
    for (int64_t i = 0; i < t.lines(); ++i) weigh(t, i, first, last, t.scores + i * BLOCK, sums + i * t.cut.sum);
    for (int64_t p = first; p < last; ++p) {
        const T *values = page(t.held.values, p, PAGE * D);
        const float *pattern = t.scores + (p - first) * PAGE;
        const int64_t ahead = p + BLOCK / PAGE, depth = std::min(PAGE, length - p * PAGE); // beyond it may be no number
        if (ahead < pages) fetch(page(t.held.keys, ahead, d * PAGE), d * PAGE * t.kv_heads);
        for (int64_t h = 0; h < t.kv_heads; ++h, values += PAGE * D, pattern += n * BLOCK) {
            for (int64_t c = 0; c < D; c += PAGE) {
                float *mix = sums + h * n * t.cut.sum + c;
                multiply_lines<TILE>(n, pattern, BLOCK, values + c, D, depth, mix, t.cut.sum, p > first);
            }
        }
    }
}

// A line's sums so far, and those of its next block.
inline void join(int64_t D, float *sums, const float *next) {
    if (next[D + 1] == 0.f) return; // nothing is seen there
    const float most = std::max(sums[D], next[D]), old = std::exp(sums[D] - most), young = std::exp(next[D] - most);
    for (int64_t c = 0; c < D; c += PAGE)
        store(sums + c, fma(load(next + c), broadcast(young), load(sums + c) * broadcast(old)));
    sums[D] = most;
    sums[D + 1] = sums[D + 1] * old + next[D + 1] * young;
}

// One member's part in an attention.
class Attention {
  public:
    // `own`: memory of each member; `shared`: of all, with `done`, zeros, for every tile that is divided.
    Attention(const Attend &o, const Pass &pass, Worker &worker, Rows queries, Rows target, float *own, float *shared,
              std::atomic<int32_t> *done)
        : o(o), pass(pass), worker(worker), queries(queries), target(target), shared(shared), done(done),
          cut(o, pass, worker.members), sums(own), next(sums + cut.lines * cut.sum),
          t{o, pass, pass.spaces[o.space], cut, next + cut.lines * cut.sum + cut.lines * BLOCK, next + cut.lines * cut.sum,
            0, 0, 0, 0, 0} {}

    void run() {
        const int64_t units = cut.divided ? cut.blocks * o.kv_heads : 1; // of a tile
        worker.share(cut.tiles * units, 1, [&](int64_t first, int64_t last) {
            for (int64_t item = first; item < last;) {
                if (!cut.divided) {
                    whole(cut.tiles - 1 - item++); // the last rows see the most: they come first
                    continue;
                }
                const int64_t block = item / o.kv_heads, head = item % o.kv_heads;
                const int64_t heads = std::min(last - item, o.kv_heads - head);
                part(block / cut.blocks, block % cut.blocks, head, heads);
                item += heads;
            }
        });
    }

  private:
    const Attend &o;
    const Pass &pass;
    Worker &worker;
    const Rows queries, target;
    float *const shared;
    std::atomic<int32_t> *const done;
    const Cut cut;
    float *const sums, *const next; // of lines: so far, and of a block
    Tile t;

    // f(at) for the rows of each sequence among those of a tile; `at`: how many rows came before.
    template <class F> void by_sequence(int64_t tile, F f) {
        const int64_t first = tile * cut.rows, last = std::min(pass.rows, first + cut.rows);
        for (t.first_row = first; t.first_row < last; t.first_row += t.rows) {
            t.sequence = pass.sequences[t.first_row];
            t.rows = std::min<int64_t>(last, pass.begins[t.sequence + 1]) - t.first_row;
            f(t.first_row - first);
        }
    }

    void take_queries() {
        const int64_t d = o.d_head;
        for (int64_t i = 0; i < t.lines(); ++i) {
            const float *q = queries.row(t.row(i)) + t.head(i) * d;
            by_lanes(d, [&](int64_t c, int64_t left) { store(t.queries + i * d + c, load(q + c, left) * broadcast(o.scale), left); });
        }
    }

    void see(int64_t block, float *out) {
        if (t.held.bfloat) attend_block<uint16_t>(t, block, out);
        else attend_block<float>(t, block, out);
    }

    void begin(float *sum, int64_t line) const { // a sink is a key that was seen already, whose value is 0
        std::fill_n(sum, cut.sum, 0.f);
        sum[cut.D] = o.sinks ? o.sinks[t.head(line)] : NOTHING;
        sum[cut.D + 1] = o.sinks ? 1.f : 0.f;
    }

    void put(int64_t line, const float *sum) { // who sees nothing gets zeros
        const Lanes share = broadcast(sum[cut.D + 1] == 0.f ? 0.f : 1.f / sum[cut.D + 1]);
        float *y = target.row(t.row(line)) + t.head(line) * o.d_head;
        by_lanes(o.d_head, [&](int64_t c, int64_t left) { store(y + c, load(sum + c) * share, left); });
    }

    void whole(int64_t tile) {
        t.kv_heads = cut.kv_heads;
        t.first_head = tile % (o.kv_heads / cut.kv_heads) * cut.kv_heads;
        by_sequence(tile / (o.kv_heads / cut.kv_heads), [&](int64_t) {
            take_queries();
            for (int64_t i = 0; i < t.lines(); ++i) begin(sums + i * cut.sum, i);
            for (int64_t block = t.first_block(); block < t.last_block(); ++block) {
                see(block, next);
                for (int64_t i = 0; i < t.lines(); ++i) join(cut.D, sums + i * cut.sum, next + i * cut.sum);
            }
            for (int64_t i = 0; i < t.lines(); ++i) put(i, sums + i * cut.sum);
        });
    }

    // Some heads of one block; whoever is last joins all blocks of the tile.
    void part(int64_t tile, int64_t block, int64_t head, int64_t heads) {
        auto kept = [&](int64_t block, int64_t line) { return shared + ((tile * cut.blocks + block) * cut.lines + line) * cut.sum; };
        t.first_head = head, t.kv_heads = heads;
        by_sequence(tile, [&](int64_t at) {
            float *out = kept(block, at * o.heads + head * t.rows * cut.group);
            if (block >= t.first_block() && block < t.last_block()) {
                take_queries();
                see(block, out);
            } else {
                for (int64_t i = 0; i < t.lines(); ++i) out[i * cut.sum + cut.D + 1] = 0.f;
            }
        });
        if (done[tile].fetch_add(int32_t(heads), std::memory_order_acq_rel) + heads < cut.blocks * o.kv_heads) return;
        done[tile].store(0, std::memory_order_relaxed);
        t.first_head = 0, t.kv_heads = o.kv_heads;
        by_sequence(tile, [&](int64_t at) {
            for (int64_t i = 0; i < t.lines(); ++i) {
                begin(sums, i);
                for (int64_t b = 0; b < cut.blocks; ++b) join(cut.D, sums, kept(b, at * o.heads + i));
                put(i, sums);
            }
        });
    }
};

} // namespace plait
