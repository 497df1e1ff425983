// Operations that look at one row of activations at a time.
#pragma once
#include "product.h"
#include "step.h"

namespace plait {

constexpr int64_t PAGE = 16; // tokens

// A view of a register as this pass has it.
struct Rows {
    float *data;
    int64_t stride;
    float *row(int64_t i) const { return data + i * stride; }
};

// f(i, left) for every 16 of n columns: the first of them, and how many columns are left.
template <class F> PLAIT_INLINE void by_lanes(int64_t n, F f) {
    for (int64_t i = 0; i < n; i += 16) f(i, n - i);
}

inline void embed(const Embed &o, const Pass &pass, int64_t row, float *y) {
    const int64_t width = o.target.width;
    unpack_row(*o.table, pass.tokens[row], y, o.scale);
    auto add = [&](const float *line) {
        by_lanes(width, [&](int64_t i, int64_t left) { store(y + i, load(y + i, left) + load(line + i, left), left); });
    };
    if (o.positions) add(o.positions + (pass.positions[row] + o.offset) * width);
    if (o.types) add(o.types + (pass.types ? pass.types[row] : 0) * width);
}

inline void norm(const Norm &o, const float *x, float *y) {
    const float n = float(o.width);
    for (int64_t run = 0; run * o.width < o.source.width; ++run, x += o.width, y += o.width) {
        Lanes total = broadcast(0.f), squares = broadcast(0.f), mean = broadcast(0.f);
        if (o.centred) {
            by_lanes(o.width, [&](int64_t i, int64_t left) { total = total + load(x + i, left); });
            mean = broadcast(sum(total) / n);
        }
        by_lanes(o.width, [&](int64_t i, int64_t left) {
            float d[16];
            Lanes off = load(x + i, left) - mean;
            if (left < 16) store(d, off), off = load(d, left); // the missing lanes are no columns far from the mean
            squares = fma(off, off, squares);
        });
        Lanes inverse = broadcast(1.f / std::sqrt(sum(squares) / n + o.eps));
        const int64_t line = run % o.lines * o.width;
        by_lanes(o.width, [&](int64_t i, int64_t left) {
            Lanes v = (load(x + i, left) - mean) * inverse;
            if (o.weight) v = v * load(o.weight + line + i, left);
            if (o.bias) v = v + load(o.bias + line + i, left);
            store(y + i, v, left);
        });
    }
}

inline void limit(const Clamp &o, float *x) {
    by_lanes(o.target.width, [&](int64_t i, int64_t left) { store(x + i, clamp(load(x + i, left), -o.limit, o.limit), left); });
}

inline void rotate(const Rotate &o, const Turns &turns, int64_t row, float *x) {
    const int64_t half = turns.width / 2;
    const float *cosines = turns.table + turns.lines[row] * turns.width, *sines = cosines + half;
    for (int64_t head = 0; head < o.target.width; head += o.d_head, x += o.d_head) {
        if (o.interleaved) {
            for (int64_t i = 0; i < half; ++i) {
                float a = x[2 * i], b = x[2 * i + 1];
                x[2 * i] = a * cosines[i] - b * sines[i];
                x[2 * i + 1] = b * cosines[i] + a * sines[i];
            }
            continue;
        }
        by_lanes(half, [&](int64_t i, int64_t left) {
            Lanes a = load(x + i, left), b = load(x + half + i, left), c = load(cosines + i, left), s = load(sines + i, left);
            store(x + i, a * c - b * s, left);
            store(x + half + i, b * c + a * s, left);
        });
    }
}

template <class T> void keep(const Store &o, const Pass &pass, int64_t row, const float *keys, const float *values) {
    auto kept = [](float x) {
        if constexpr (sizeof(T) == 2) return to_bfloat(x);
        else return x;
    };
    const Held &held = pass.spaces[o.space];
    const int64_t order = pass.orders[row], d = o.d_head, D = (d + PAGE - 1) / PAGE * PAGE, heads = o.keys.width / d;
    const int64_t page = held.tables[pass.sequences[row]][order / PAGE] * heads, slot = order % PAGE;
    for (int64_t head = 0; head < heads; ++head, keys += d, values += d) {
        T *k = (T *)held.keys[o.layer] + (page + head) * d * PAGE + slot;
        T *v = (T *)held.values[o.layer] + ((page + head) * PAGE + slot) * D;
        for (int64_t i = 0; i < d; ++i) k[i * PAGE] = kept(keys[i]), v[i] = kept(values[i]);
    }
}

inline void fire(const Activate &o, float *x) {
    by_lanes(o.target.width, [&](int64_t i, int64_t left) { store(x + i, activate(o.activation, load(x + i, left)), left); });
}

// y = act(gate) * (up + offset), of n columns, gate cut above a limit and up to both sides; y may be gate.
inline void gate(int64_t activation, float limit, float offset, int64_t n, const float *gate, const float *up, float *y) {
    const bool plain = limit == INFINITY && offset == 0.f;
    by_lanes(n, [&](int64_t i, int64_t left) {
        Lanes g = load(gate + i, left), u = load(up + i, left);
        if (!plain) g = clamp(g, -INFINITY, limit), u = clamp(u, -limit, limit) + broadcast(offset);
        store(y + i, activate(activation, g) * u, left);
    });
}

// Logits of n experts become what each that is picked counts, 0 for the others; of equals the first is picked. `judged`
// is memory of route_floats().
inline void route(const Route &o, float *x, float *judged) {
    const int64_t n = o.target.width, size = n / o.groups;
    float most = -INFINITY, total = 0.f;
    for (int64_t i = 0; i < n; ++i) most = std::max(most, x[i]);
    for (int64_t i = 0; i < n; ++i) total += x[i] = o.sigmoid ? 1.f / (1.f + std::exp(-x[i])) : std::exp(x[i] - most);
    for (int64_t i = 0; i < n; ++i) {
        if (!o.sigmoid) x[i] /= total;
        judged[i] = o.score_bias ? x[i] + o.score_bias[i] : x[i];
    }
    // The best that is open of n numbers is taken, and shut.
    auto best = [](const float *value, float *open, int64_t n) {
        int64_t found = -1;
        for (int64_t i = 0; i < n; ++i)
            if (open[i] > 0.f && (found < 0 || value[i] > value[found])) found = i;
        open[found] = 0.f;
        return found;
    };
    float *open = judged + n, *worth = open + n, *group_open = worth + o.groups;
    std::fill_n(open, n, o.top_groups < o.groups ? 0.f : 1.f);
    if (o.top_groups < o.groups) {
        for (int64_t g = 0; g < o.groups; ++g) {
            float *two = open + g * size; // all open, and the two best are found
            std::fill_n(two, size, 1.f);
            worth[g] = 0.f;
            for (int64_t i = 0; i < 2; ++i) worth[g] += judged[g * size + best(judged + g * size, two, size)];
            std::fill_n(two, size, 0.f);
            group_open[g] = 1.f;
        }
        for (int64_t i = 0; i < o.top_groups; ++i) std::fill_n(open + best(worth, group_open, o.groups) * size, size, 1.f);
    }
    total = 1e-20f;
    for (int64_t i = 0; i < o.per_token; ++i) {
        const int64_t found = best(judged, open, n);
        open[found] = -1.f;
        total += x[found];
    }
    const float scale = o.renormalize ? o.scale / total : o.scale;
    for (int64_t i = 0; i < n; ++i) x[i] = open[i] < 0.f ? x[i] * scale : 0.f;
}

inline int64_t route_floats(const Route &o) { return 2 * (o.target.width + o.groups); }

inline void add(const Add &o, const float *x, float *y) {
    by_lanes(o.target.width, [&](int64_t i, int64_t left) {
        store(y + i, fma(broadcast(o.skip), load(y + i, left), broadcast(o.scale) * load(x + i, left)), left);
    });
}

inline void cap(const Cap &o, int64_t n, float *x) {
    by_lanes(n, [&](int64_t i, int64_t left) {
        Lanes y = load(x + i, left) * broadcast(o.scale);
        store(x + i, o.softcap == 0.f ? y : broadcast(o.softcap) * tanh(y * broadcast(1.f / o.softcap)), left);
    });
}

} // namespace plait
