#include "learn.h"
#include "tiles.h"

#include <algorithm>
#include <vector>

namespace plait {

namespace {

constexpr int64_t ROWS = 8 * TILE;        // whose scores are held at once
constexpr float HIDDEN = -3e38f;          // the score of what may not be seen
constexpr float NOTHING = 1e30f;          // the logarithm of the sum of no exponentials: with it all patterns are 0

// One member's memory, and its part of an attention: a key head with all query heads that read it, at a time.
class Member {
  public:
    explicit Member(const Learn &o, bool backward) : o(o), D(whole(o.d)), M(whole(o.keys)) {
        for (auto *v : {&keys, &values}) v->resize(M * D);
        scores.resize(ROWS * M), mix.resize(ROWS * D), query.resize(ROWS * D);
        if (!backward) return;
        for (auto *v : {&key_rows, &d_keys, &d_values}) v->resize(M * D);
        slopes.resize(ROWS * M), d_out.resize(ROWS * D);
    }

    void forward(int64_t b, int64_t kv) {
        panels(o.key, b, kv, keys.data());
        lines(o.value, b, kv, 0, o.keys, values.data());
        each_block(kv, [&](int64_t h, int64_t first, int64_t n) {
            score(o.query, b, h, first, n, keys.data(), scores.data());
            float inverse[ROWS];
            for (int64_t i = 0; i < n; ++i) inverse[i] = weigh(b, h, first + i, scores.data() + i * M);
            each_tile(n, [&](int64_t i, int64_t few) {
                for (int64_t c = 0; c < D; c += WIDE)
                    tile(few, scores.data() + i * M, M, 1, values.data() + c, D, seen(first + i + few), mix.data() + i * D + c, D, false);
            });
            for (int64_t i = 0; i < n; ++i) put(mix.data() + i * D, o.out.at(b, h, first + i), inverse[i]);
        });
    }

    // With the pattern P = exp(S - sums), dropped P' = P * kept, and d = the sum of dO * O in a row:
    //   dV = P'^T dO,   dS = scale * P * (kept * dO V^T - d),   dQ = dS K,   dK = dS^T Q
    void backward(int64_t b, int64_t kv) {
        panels(o.key, b, kv, keys.data());
        panels(o.value, b, kv, values.data());
        lines(o.key, b, kv, 0, o.keys, key_rows.data());
        for (auto *v : {&d_keys, &d_values}) std::fill(v->begin(), v->end(), 0.f);
        each_block(kv, [&](int64_t h, int64_t first, int64_t n) {
            score(o.query, b, h, first, n, keys.data(), scores.data());
            score(o.d_out, b, h, first, n, values.data(), slopes.data());
            lines(o.query, b, h, first, n, query.data());
            lines(o.d_out, b, h, first, n, d_out.data());
            for (int64_t i = 0; i < n; ++i) slope(b, h, first + i, scores.data() + i * M, slopes.data() + i * M, d_out.data() + i * D);
            each_tile(n, [&](int64_t i, int64_t few) {
                for (int64_t c = 0; c < D; c += WIDE)
                    tile(few, slopes.data() + i * M, M, 1, key_rows.data() + c, D, seen(first + i + few), mix.data() + i * D + c, D, false);
            });
            for (int64_t i = 0; i < n; ++i) put(mix.data() + i * D, o.d_query.at(b, h, first + i), 1.f);
            each_tile(seen(first + n), [&](int64_t j, int64_t few) { // rows before the first of these keys do not see them
                const int64_t skip = o.causal ? std::max<int64_t>(0, j - first) : 0;
                if (skip >= n) return;
                for (int64_t c = 0; c < D; c += WIDE) {
                    const int64_t at = skip * M + j, row = skip * D + c, to = j * D + c;
                    tile(few, scores.data() + at, 1, M, d_out.data() + row, D, n - skip, d_values.data() + to, D, true);
                    tile(few, slopes.data() + at, 1, M, query.data() + row, D, n - skip, d_keys.data() + to, D, true);
                }
            });
        });
        for (int64_t j = 0; j < o.keys; ++j) {
            put(d_keys.data() + j * D, o.d_key.at(b, kv, j), 1.f);
            put(d_values.data() + j * D, o.d_value.at(b, kv, j), 1.f);
        }
    }

    // What a sequence's heads will read: row after row, as they lie, and not head after head, each from all rows.
    void ask(int64_t b, bool backward) const {
        auto rows = [&](const Heads &x, int64_t heads, int64_t n) {
            if (x.head != o.d) return;
            for (int64_t i = 0; i < n; ++i) fetch(x.at(b, 0, i), heads * o.d);
        };
        rows(o.query, o.heads, o.rows), rows(o.key, o.kv_heads, o.keys), rows(o.value, o.kv_heads, o.keys);
        if (backward) rows(o.out, o.heads, o.rows), rows(o.d_out, o.heads, o.rows);
    }

  private:
    const Learn &o;
    const int64_t D, M;
    std::vector<float> keys, values, key_rows, d_keys, d_values; // (M, D), or its 16 rows side by side
    std::vector<float> scores, slopes;                           // (ROWS, M)
    std::vector<float> query, d_out, mix;                        // (ROWS, D)

    // Keys that the rows before `end` see.
    int64_t seen(int64_t end) const { return o.causal ? std::min(end, o.keys) : o.keys; }

    template <class F> void each_block(int64_t kv, F f) {
        const int64_t group = o.heads / o.kv_heads;
        for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
            for (int64_t first = 0; first < o.rows; first += ROWS) f(h, first, std::min(ROWS, o.rows - first));
    }

    template <class F> static void each_tile(int64_t n, F f) {
        for (int64_t i = 0; i < n; i += TILE) f(i, std::min<int64_t>(TILE, n - i));
    }

    // Rows side by side, 16 at a time: (M / 16, d, 16).
    void panels(const Heads &x, int64_t b, int64_t h, float *to) const {
        for (int64_t j = 0; j < M; ++j) {
            const float *from = x.at(b, h, std::min(j, o.keys - 1));
            float *column = to + j / WIDE * o.d * WIDE + j % WIDE;
            for (int64_t c = 0; c < o.d; ++c) column[c * WIDE] = j < o.keys ? from[c] : 0.f;
        }
    }

    // Rows one after the other, (n, D).
    void lines(const Heads &x, int64_t b, int64_t h, int64_t first, int64_t n, float *to) const {
        for (int64_t i = 0; i < n; ++i, to += D) {
            const float *from = x.at(b, h, first + i);
            for (int64_t c = 0; c < o.d; c += WIDE) store(to + c, load(from + c, o.d - c));
        }
    }

    void put(const float *from, float *to, float scale) const {
        for (int64_t c = 0; c < o.d; c += WIDE) store(to + c, load(from + c) * broadcast(scale), o.d - c);
    }

    // (n, M): rows times panels, as far as some row of a tile sees.
    void score(const Heads &x, int64_t b, int64_t h, int64_t first, int64_t n, const float *panels, float *to) const {
        each_tile(n, [&](int64_t i, int64_t few) {
            for (int64_t j = 0; j < seen(first + i + few); j += WIDE)
                tile(few, x.at(b, h, first + i), x.row, 1, panels + j * o.d, WIDE, o.d, to + i * M + j, M, false);
        });
    }

    // Numbers of a row that a tile reads, for which there is a score: a whole number of 16.
    int64_t reach(int64_t i) const { return whole(seen(std::min(o.rows, i / TILE * TILE + TILE))); }

    void hide(int64_t b, int64_t i, float *s) const {
        std::fill(s + seen(i + 1), s + reach(i), HIDDEN);
        if (!o.allowed) return;
        const uint8_t *allowed = o.allowed + b * o.allowed_batch + i * o.allowed_row;
        for (int64_t j = 0; j < seen(i + 1); ++j) s[j] = allowed[j] ? s[j] : HIDDEN;
    }

    const float *kept(int64_t b, int64_t h, int64_t i) const {
        return o.kept ? o.kept + o.starts[b * o.heads + h] + i * o.keys : nullptr;
    }

    // Scores become exponentials; one over their sum. A row that sees nothing gets nothing.
    float weigh(int64_t b, int64_t h, int64_t i, float *s) const {
        hide(b, i, s);
        const int64_t n = reach(i);
        Lanes top = broadcast(HIDDEN), total = broadcast(0.f), scale = broadcast(o.scale);
        for (int64_t j = 0; j < n; j += WIDE) top = max(top, load(s + j));
        const float most = greatest(top);
        const float *keep = kept(b, h, i);
        for (int64_t j = 0; j < n; j += WIDE) {
            Lanes e = exp((load(s + j) - broadcast(most)) * scale);
            total = total + e;
            store(s + j, keep ? e * load(keep + j, o.keys - j) : e);
        }
        const float all = sum(total);
        const bool blind = most == HIDDEN && all == all; // no number is greater than NaN either: it is let through
        if (blind) std::fill_n(s, n, 0.f);
        if (o.sums) o.sums[(b * o.heads + h) * o.rows + i] = blind ? NOTHING : most * o.scale + std::log(all);
        return blind ? 0.f : 1.f / all;
    }

    // Scores become the dropped pattern, and products of dO and V the gradient of scores.
    void slope(int64_t b, int64_t h, int64_t i, float *s, float *ds, const float *d_out_row) const {
        hide(b, i, s);
        const float *y = o.out.at(b, h, i), *keep = kept(b, h, i);
        Lanes dot = broadcast(0.f), scale = broadcast(o.scale), less = broadcast(o.sums[(b * o.heads + h) * o.rows + i]);
        for (int64_t c = 0; c < o.d; c += WIDE) dot = fma(load(y + c, o.d - c), load(d_out_row + c), dot);
        const Lanes mean = broadcast(sum(dot));
        for (int64_t j = 0; j < reach(i); j += WIDE) {
            Lanes p = exp(fma(load(s + j), scale, -less)), d = load(ds + j);
            if (keep) {
                Lanes k = load(keep + j, o.keys - j);
                store(s + j, p * k);
                d = d * k;
            } else {
                store(s + j, p);
            }
            store(ds + j, p * (d - mean) * scale);
        }
    }
};

// All heads of a sequence by one member where there are enough sequences: their rows lie side by side.
template <class F> void share_heads(Worker &worker, const Learn &o, bool backward, F f) {
    Member member(o, backward);
    const int64_t together = o.batch < 4 * worker.members ? 1 : o.kv_heads;
    worker.share(o.batch * o.kv_heads / together, 1, [&](int64_t first, int64_t last) {
        for (int64_t item = first * together; item < last * together; ++item) {
            if (together > 1 && item % o.kv_heads == 0) member.ask(item / o.kv_heads, backward);
            f(member, item / o.kv_heads, item % o.kv_heads);
        }
    });
}

// y and slope of 16 numbers.
PLAIT_INLINE void activate(int64_t kind, Lanes x, Lanes &y, Lanes &slope) {
    const Lanes one = broadcast(1.f), half = broadcast(0.5f);
    if (kind == SILU) {
        Lanes s = sigmoid(x);
        y = x * s;
        slope = s * fma(x, one - s, one);
        return;
    }
    auto tail = [x](Lanes v) { return zero_below(x, broadcast(-5.5f), v); }; // as activate() in product.h
    if (kind == GELU_TANH) {
        const Lanes c = broadcast(0.79788456f), a = broadcast(0.044715f), square = x * x;
        Lanes t = tanh(c * fma(a * square, x, x));
        Lanes inner = c * fma(broadcast(3.f) * a, square, one);
        y = tail(half * x * (one + t));
        slope = tail(half * fma(x * (one - t * t), inner, one + t));
        return;
    }
    Lanes share = half * (one + erf(x * broadcast(0.70710678f)));
    y = tail(x * share);
    slope = tail(fma(x * broadcast(0.39894228f), exp(broadcast(-0.5f) * x * x), share));
}

template <int64_t kind> void activate_all(const float *x, int64_t n, float *y, float *slope) {
    for (int64_t i = 0; i < n; i += WIDE) {
        Lanes a, b;
        activate(kind, load(x + i, n - i), a, b);
        store(y + i, a, n - i), store(slope + i, b, n - i);
    }
}

} // namespace

void attend_forward(Worker &worker, const Learn &o) {
    share_heads(worker, o, false, [](Member &member, int64_t b, int64_t h) { member.forward(b, h); });
}

void attend_backward(Worker &worker, const Learn &o) {
    share_heads(worker, o, true, [](Member &member, int64_t b, int64_t h) { member.backward(b, h); });
}

void activate_forward(Worker &worker, int64_t kind, const float *x, int64_t n, float *y, float *slope) {
    constexpr int64_t PIECE = 1 << 12;
    auto all = kind == SILU ? activate_all<SILU> : kind == GELU_TANH ? activate_all<GELU_TANH> : activate_all<GELU>;
    worker.share((n + PIECE - 1) / PIECE, 1, [&](int64_t first, int64_t last) {
        const int64_t from = first * PIECE, to = std::min(n, last * PIECE);
        all(x + from, to - from, y + from, slope + from);
    });
}

} // namespace plait
