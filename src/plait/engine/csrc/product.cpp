#include "product.h"

#include <algorithm>

namespace plait {

namespace {

// Activations rounded to integers, by groups; what is beyond the last column is zero.
template <class Integer, int N> struct Rounded {
    float scale;  // x = scale * q
    float offset; // scale * sum of q, which the weights' minimum is multiplied with
    Integer q[N];
};

// Asks for what lies ahead in memory.
template <bool yes> PLAIT_INLINE void prefetch(const void *p) {
    if (yes) __builtin_prefetch(p, 0, 3);
}
constexpr int64_t AHEAD = 1536; // bytes that a tile alone asks for in advance

// Panels, of which some are read side by side: the processor fetches ahead in each of them, which is the fastest way
// through memory where there is little to do. What to ask for with every 64 bytes of a panel that is read alone.
struct Panels {
    const uint8_t *data;
    int64_t apart; // bytes
    const uint8_t *next;
    int64_t pace; // bytes
    void skip(int64_t panels) { data += panels * apart, next += panels * apart; }
};

// Sums of P panels with R rows, in registers; in memory those of a panel are `of` apart.
template <int R, int P> struct Sums {
    Lanes s[P][R];
    PLAIT_INLINE Sums(const Lanes *from, int64_t of) {
        times<P>([&](auto p) { times<R>([&](auto r) { s[p][r] = from[p * of + r]; }); });
    }
    PLAIT_INLINE Lanes &operator()(int p, int r) { return s[p][r]; }
    PLAIT_INLINE void store(Lanes *to, int64_t of) const {
        times<P>([&](auto p) { times<R>([&](auto r) { to[p * of + r] = s[p][r]; }); });
    }
};

// One struct for each format: what rows of X consist of, for how many inputs one such thing stands, how many sums are in
// registers, how many of them where panels lie side by side, and with how many tiles of rows a product still waits for
// memory. `add` is sum[p * of + r] += x[r] (inputs,) times the 16 rows of panel p, for R rows of x, `stride` apart, and P
// panels; inputs are those of the panels from their start.

struct InF32 {
    using Row = float;
    static constexpr int each = 1, sums = TILE, side = 6, waiting = 3;
    template <int R, int P, bool ahead>
    static void add(const Panels &w, int64_t inputs, const Row *x, int64_t stride, Lanes *sum, int64_t of) {
        Sums<R, P> s(sum, of);
        auto data = (const float *)w.data;
        const uint8_t *next = w.next;
        for (int64_t k = 0; k < inputs; ++k, data += 16, next += w.pace) {
            prefetch<ahead>(next);
            times<P>([&](auto p) {
                Lanes wk = load(data + p * (w.apart / 4));
                times<R>([&](auto r) { s(p, r) = fma(wk, broadcast(x[r * stride + k]), s(p, r)); });
            });
        }
        s.store(sum, of);
    }
};

struct InBF16 {
    using Row = float;
    static constexpr int each = 1, sums = TILE_BF16, side = 3, waiting = 3;
    template <int R, int P, bool ahead>
    static void add(const Panels &w, int64_t inputs, const Row *x, int64_t stride, Lanes *sum, int64_t of) {
        Sums<R, P> s(sum, of);
        const uint8_t *data = w.data, *next = w.next;
        for (int64_t k = 0; k < inputs; k += 2, data += 64, next += w.pace) {
            prefetch<ahead>(next);
            Lanes even[P], odd[P];
            times<P>([&](auto p) {
                load_bfloat_pairs(data + p * w.apart, even[p], odd[p]);
                times<R>([&](auto r) { s(p, r) = fma(even[p], broadcast(x[r * stride + k]), s(p, r)); });
            });
            if (k + 1 == inputs) break;
            times<P>([&](auto p) {
                times<R>([&](auto r) { s(p, r) = fma(odd[p], broadcast(x[r * stride + k + 1]), s(p, r)); });
            });
        }
        s.store(sum, of);
    }
};

// int8 weights (scales float16, or float32 where Wide) times int16 activations, in groups of N.
template <int N, bool Wide> struct InI8 {
    using Row = Rounded<int16_t, N>;
    static constexpr int each = N, sums = TILE_INT, side = 1, waiting = 1;
    template <int R, int, bool ahead>
    static void add(const Panels &panels, int64_t inputs, const Row *x, int64_t stride, Lanes *sum, int64_t) {
        const uint8_t *w = panels.data;
        constexpr int scales = Wide ? 64 : 32;
        Lanes s[R];
        times<R>([&](auto r) { s[r] = sum[r]; });
        for (int64_t k = 0; k < inputs; k += N, w += scales + 16 * N, ++x) {
            Ints dot[R] = {};
            auto q = (const int8_t *)w + scales;
            _Pragma("GCC unroll 1") for (int pair = 0; pair < N / 2; ++pair) {
                if (pair % 2 == 0) prefetch<ahead>(q + 32 * pair + AHEAD);
                Pairs p = load_pairs(q + 32 * pair);
                times<R>([&](auto r) { dot[r] = add_dot(dot[r], p, word(x[r * stride].q + 2 * pair)); });
            }
            Lanes scale = Wide ? load((const float *)w) : load_half(w);
            times<R>([&](auto r) { s[r] = fma(to_float(dot[r]), scale * broadcast(x[r * stride].scale), s[r]); });
        }
        times<R>([&](auto r) { sum[r] = s[r]; });
    }
};

// Activations rounded to 8 bits, q = 256 * high; or, where a group has an outlier that would round all others away, to
// 16 bits, q = 256 * high + low. Rounding them all to 8 bits costs SmolLM2 three times the divergence.
struct Halved {
    float scale, offset; // as in Rounded
    int32_t wide;        // whether low is anything but 0
    int8_t high[32], low[32];
};
constexpr float OUTLIER = 8; // times the root mean square of the row

// int4 weights times the bytes of an activation, one after the other: a sum of 32 products of such a byte fits in 16
// bits. The integers are unsigned, and the activations' sum, times -8 or the group's minimum, makes up for it.
enum class Low { EIGHT, HALF, FLOAT };

template <Low low> struct InI4 {
    using Row = Halved;
    static constexpr int each = 32, sums = TILE_INT, side = 1, waiting = 1;
    template <int R, int, bool ahead>
    static void add(const Panels &panels, int64_t inputs, const Row *x, int64_t stride, Lanes *sum, int64_t) {
        const uint8_t *w = panels.data;
        constexpr int header = low == Low::EIGHT ? 32 : low == Low::HALF ? 64 : 128;
        Lanes s[R], dot[R];
        times<R>([&](auto r) { s[r] = sum[r]; });
        for (int64_t k = 0; k < inputs; k += 32, w += header + 256, ++x) {
            auto bytes = [&](auto of, auto then) {
                QuadSum d[R] = {};
                _Pragma("GCC unroll 1") for (int v = 0; v < 4; ++v) {
                    Quads first, second;
                    prefetch<ahead>(w + header + 64 * v + AHEAD);
                    load_quads(w + header + 64 * v, first, second);
                    times<R>([&](auto r) { d[r] = add_dot(d[r], first, word(of(x[r * stride]) + 4 * v)); });
                    times<R>([&](auto r) { d[r] = add_dot(d[r], second, word(of(x[r * stride]) + 16 + 4 * v)); });
                }
                times<R>([&](auto r) { then(dot[r], to_float(total(d[r]))); });
            };
            bytes([](const Row &row) { return row.high; }, [](Lanes &d, Lanes high) { d = high; });
            times<R>([&](auto r) { dot[r] = dot[r] * broadcast(256.f); });
            int32_t wide = 0;
            times<R>([&](auto r) { wide |= x[r * stride].wide; });
            if (wide) bytes([](const Row &row) { return row.low; }, [](Lanes &d, Lanes rest) { d = d + rest; });
            Lanes scale = low == Low::FLOAT ? load((const float *)w) : load_half(w);
            times<R>([&](auto r) {
                Lanes unit = broadcast(x[r * stride].scale), offset = broadcast(x[r * stride].offset);
                if constexpr (low == Low::EIGHT) {
                    s[r] = fma(scale, fma(dot[r], unit, broadcast(-8.f) * offset), s[r]);
                } else {
                    Lanes least = low == Low::FLOAT ? load((const float *)w + 16) : load_half(w + 32);
                    s[r] = fma(least, offset, fma(scale, dot[r] * unit, s[r]));
                }
            });
        }
        times<R>([&](auto r) { sum[r] = s[r]; });
    }
};

// Rounds n inputs (nearest even), n at most N, to integers up to `largest`, or up to `wide` where one of them is beyond
// the limit, which it tells. A group with an infinity or no number gets a scale that is none.
template <class Integer, int N>
bool round_group(const float *x, int64_t n, float largest, Rounded<Integer, N> &out, float limit = INFINITY, float wide = 0) {
    float value[N] = {};
    std::memcpy(value, x, size_t(n) * sizeof(float));
    int32_t most = 0; // magnitudes of floats are ordered as their bits are
    for (int i = 0; i < N; ++i) {
        int32_t magnitude = bits<int32_t>(value[i]) & 0x7fffffff;
        most = magnitude > most ? magnitude : most;
    }
    bool finite = most < 0x7f800000;
    float top = bits<float>(most);
    const bool beyond = top > limit;
    if (beyond) largest = wide;
    float inverse = finite && top > 0 ? largest / top : 0.f;
    if (!(inverse <= 3e38f)) inverse = 0.f; // numbers so small are nothing
    int32_t sum = 0;
    for (int i = 0; i < N; ++i) {
        float shifted = value[i] * inverse + 12582912.f; // 1.5 * 2^23: the unit is the last place, and addition rounds
        int32_t q = finite ? bits<int32_t>(shifted) - 0x4b400000 : 0;
        out.q[i] = Integer(q);
        sum += q;
    }
    out.scale = finite ? (inverse > 0 ? top / largest : 0.f) : NAN;
    out.offset = out.scale * float(sum);
    return beyond;
}

template <class Row, int N> void round_row(const float *x, int64_t columns, Row *out) {
    for (int64_t k = 0; k < columns; k += N) round_group(x + k, columns - k < N ? columns - k : N, 32767, *out++);
}

template <> void round_row<Halved, 32>(const float *x, int64_t columns, Halved *out) {
    Lanes squares = broadcast(0.f);
    for (int64_t k = 0; k < columns; k += 16) {
        Lanes v = load(x + k, columns - k);
        squares = fma(v, v, squares);
    }
    const float limit = OUTLIER * std::sqrt(sum(squares) / float(columns));
    for (int64_t k = 0; k < columns; k += 32, ++out) {
        Rounded<int16_t, 32> whole;
        const int64_t n = columns - k < 32 ? columns - k : 32;
        out->wide = round_group(x + k, n, 127, whole, limit, 127 * 257);
        out->scale = out->wide ? whole.scale : whole.scale / 256;
        out->offset = whole.offset;
        for (int i = 0; i < 32; ++i) {
            out->high[i] = int8_t(out->wide ? (whole.q[i] + 128) >> 8 : whole.q[i]);
            out->low[i] = int8_t(out->wide ? whole.q[i] - 256 * out->high[i] : 0);
        }
    }
}

constexpr int64_t NEAR = 256 << 10; // bytes of activations that stay close to a core while panels go by
constexpr int64_t MOST_ROWS = 96;   // of a block: their sums of one panel are on the stack
constexpr int64_t PIECE = 4608;     // bytes of a panel after which the tiles take turns, so that it is read once

// What becomes of the sums of one row and one panel.
PLAIT_INLINE void finish(Lanes sum, float *target, int64_t row, int64_t count, const Epilogue &e) {
    if (e.bias) sum = sum + load(e.bias + row, count);
    Lanes y = activate(e.activation, sum) * broadcast(e.scale);
    if (e.add) y = fma(broadcast(e.skip), load(target, count), y);
    store(target, y, count);
}

// Some rows with `side` panels, or a piece of them.
template <class In, bool ahead, int R>
void tile(int64_t rows, int64_t side, Panels w, int64_t inputs, const typename In::Row *x, int64_t stride, Lanes *sum, int64_t of) {
    constexpr int P = std::max(1, In::side / R);
    if constexpr (R > 1)
        if (rows < R) return tile<In, ahead, R - 1>(rows, side, w, inputs, x, stride, sum, of);
    for (; P > 1 && side >= P; side -= P, w.skip(P), sum += P * of)
        In::template add<R, P, false>(w, inputs, x, stride, sum, of);
    for (; side > 0; --side, w.skip(1), sum += of) In::template add<R, 1, ahead>(w, inputs, x, stride, sum, of);
}

template <class In>
void multiply(Worker &worker, const Matrix &w, const typename In::Row *x, int64_t stride, int64_t n, float *y,
              int64_t y_stride, const Epilogue &epilogue) {
    const Layout layout = LAYOUTS[w.format];
    const int64_t row_bytes = stride * int64_t(sizeof *x), n_panels = panels(w.rows), bytes = panel_bytes(w.format, w.columns);
    int64_t block = NEAR / (row_bytes ? row_bytes : 1) / In::sums * In::sums;
    block = block < 4 * In::sums ? 4 * In::sums : block > MOST_ROWS ? MOST_ROWS : block;
    const int64_t blocks = (n + block - 1) / block;
    block = blocks ? (n + blocks - 1) / blocks : 1;
    const int64_t most = block > In::sums ? 1 : std::max<int64_t>(1, In::side / block);
    const int64_t step = block > In::sums ? PIECE / layout.bytes * layout.inputs : w.columns;
    const bool wait = block <= In::sums * In::waiting;
    // An item is one panel with one block of rows, the panels of a block one after the other.
    worker.share(blocks * n_panels, 1, [&](int64_t first, int64_t last) {
        for (int64_t item = first, side; item < last; item += side) {
            const int64_t top = item / n_panels * block, panel = item % n_panels;
            const int64_t rows = std::min(block, n - top), tiles = (rows + In::sums - 1) / In::sums;
            side = std::min({most, last - item, n_panels - panel});
            Lanes sums[MOST_ROWS]; // (side, rows)
            for (int64_t i = 0; i < side * rows; ++i) sums[i] = broadcast(0.f);
            for (int64_t k = 0; k < w.columns; k += step) {
                const int64_t inputs = std::min(step, w.columns - k), size = groups(w.format, inputs) * layout.bytes;
                const uint8_t *data = w.data + panel * bytes + k / layout.inputs * layout.bytes;
                for (int64_t t = 0; t < tiles; ++t) {
                    // With every tile a part of what comes next in memory is asked for: the next piece, or the next panel.
                    const uint8_t *next = data + (tiles > 1 ? size + t * size / tiles : AHEAD);
                    const int64_t row = t * rows / tiles, end = (t + 1) * rows / tiles;
                    auto some = wait ? tile<In, true, In::sums> : tile<In, false, In::sums>;
                    some(end - row, side, {data, bytes, next, 64 / tiles}, inputs, x + (top + row) * stride + k / In::each,
                         stride, sums + row, rows);
                    for (int64_t b = 0; !wait && b < size / tiles; b += 64) __builtin_prefetch(next + b, 0, 2);
                }
            }
            for (int64_t p = 0; p < side; ++p) {
                const int64_t start = (panel + p) * PANEL, count = w.rows - start;
                for (int64_t row = 0; row < rows; ++row)
                    finish(sums[p * rows + row], y + (top + row) * y_stride + start, start, count, epilogue);
            }
        }
    });
}

template <class In>
void round_and_multiply(Worker &worker, const Matrix &w, const float *x, int64_t x_stride, int64_t n, float *y,
                        int64_t y_stride, const Epilogue &epilogue, void *scratch, bool own) {
    auto rounded = (typename In::Row *)scratch;
    const int64_t per_row = groups(w.format, w.columns);
    auto round = [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
            round_row<typename In::Row, In::each>(x + row * x_stride, w.columns, rounded + row * per_row);
    };
    if (own) {
        round(0, n);
    } else {
        worker.share(n, 1, round);
        worker.barrier();
    }
    multiply<In>(worker, w, rounded, per_row, n, y, y_stride, epilogue);
}

} // namespace

int64_t scratch_bytes(int64_t format, int64_t n, int64_t columns) {
    const int64_t group[FORMATS] = {0, 0, sizeof(Rounded<int16_t, 32>), sizeof(Rounded<int16_t, 16>),
                                    sizeof(Halved), sizeof(Halved), sizeof(Halved)};
    return n * groups(format, columns) * group[format];
}

void product(Worker &worker, const Matrix &w, const float *x, int64_t x_stride, int64_t n, float *y, int64_t y_stride,
             const Epilogue &e, void *scratch, bool own) {
    switch (w.format) {
    case F32: return multiply<InF32>(worker, w, x, x_stride, n, y, y_stride, e);
    case BF16: return multiply<InBF16>(worker, w, x, x_stride, n, y, y_stride, e);
    case I8: return round_and_multiply<InI8<32, false>>(worker, w, x, x_stride, n, y, y_stride, e, scratch, own);
    case I8W: return round_and_multiply<InI8<16, true>>(worker, w, x, x_stride, n, y, y_stride, e, scratch, own);
    case I4: return round_and_multiply<InI4<Low::EIGHT>>(worker, w, x, x_stride, n, y, y_stride, e, scratch, own);
    case I4M: return round_and_multiply<InI4<Low::HALF>>(worker, w, x, x_stride, n, y, y_stride, e, scratch, own);
    case I4MW: return round_and_multiply<InI4<Low::FLOAT>>(worker, w, x, x_stride, n, y, y_stride, e, scratch, own);
    }
}

void unpack_row(const Matrix &w, int64_t row, float *out, float scale) {
    const Layout layout = LAYOUTS[w.format];
    const uint8_t *group = w.data + row / PANEL * panel_bytes(w.format, w.columns);
    const int64_t r = row % PANEL;
    for (int64_t start = 0; start < w.columns; start += layout.inputs, group += layout.bytes) {
        auto floats = (const float *)group;
        auto halves = (const uint16_t *)group;
        for (int64_t i = 0; i < layout.inputs && start + i < w.columns; ++i) {
            auto nibble = [&](int64_t header) {
                uint8_t both = group[header + i % 16 / 4 * 64 + r * 4 + i % 4];
                return float(i < 16 ? both & 15 : both >> 4);
            };
            auto byte = [&](int64_t header) { return float(int8_t(group[header + i / 2 * 32 + r * 2 + i % 2])); };
            float value = 0;
            switch (w.format) {
            case F32: value = floats[r]; break;
            case BF16: value = bfloat(halves[r * 2 + i]); break;
            case I8: value = half(halves[r]) * byte(32); break;
            case I8W: value = floats[r] * byte(64); break;
            case I4: value = half(halves[r]) * (nibble(32) - 8); break;
            case I4M: value = half(halves[r]) * nibble(64) + half(halves[16 + r]); break;
            case I4MW: value = floats[r] * nibble(128) + floats[16 + r]; break;
            }
            out[start + i] = value * scale;
        }
    }
}

} // namespace plait
