#include "learn.h"
#include "tiles.h"

#include <algorithm>
#include <cmath>

namespace plait {

namespace {

constexpr int64_t SUMMED = 128; // outputs of which there is a sum

// 16 places, or the n that are left, from `first` on.
void slope_places(const Slope &o, int64_t first, int64_t n) {
    float *y = o.logits + first, least[WIDE], sums[WIDE], own[WIDE], weight[WIDE];
    Lanes top = load(y, n), total = broadcast(0.f), plain = broadcast(0.f);
    for (int64_t v = 1; v < o.outputs; ++v) top = max(top, load(y + v * o.row, n));
    for (int64_t i = 0; i < n; ++i) own[i] = y[o.targets[first + i] * o.row + i];
    for (int64_t v = 0; v < o.outputs;) { // sums of sums: a long one rounds much away
        Lanes some = broadcast(0.f), differences = some;
        for (const int64_t end = std::min(o.outputs, v + SUMMED); v < end; ++v) {
            const Lanes x = load(y + v * o.row, n) - top, e = exp(x);
            some = some + e, differences = differences + x;
            if (!o.keep) store(y + v * o.row, e, n);
        }
        total = total + some, plain = plain + differences;
    }
    store(least, top), store(sums, total), store(weight, plain);
    for (int64_t i = 0; i < n; ++i) {
        const float s = o.smoothing, log = std::log(sums[i]), lse = least[i] + log;
        const float mean = s == 0.f ? 0.f : s * weight[i] / float(o.outputs); // of what may be minus infinity
        o.losses[first + i] = log - (1.f - s) * (own[i] - least[i]) - mean + o.z_loss * lse * lse;
        weight[i] = (1.f + 2.f * o.z_loss * lse) / sums[i];
    }
    if (o.keep) return;
    const Lanes w = load(weight), less = broadcast(o.smoothing / float(o.outputs));
    for (int64_t v = 0; v < o.outputs; ++v) store(y + v * o.row, fma(load(y + v * o.row, n), w, -less), n);
    for (int64_t i = 0; i < n; ++i) y[o.targets[first + i] * o.row + i] -= 1.f - o.smoothing;
}

} // namespace

void slope_logits(Worker &worker, const Slope &o) {
    worker.share((o.columns + WIDE - 1) / WIDE, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first * WIDE; i < std::min(o.columns, last * WIDE); i += WIDE)
            slope_places(o, i, std::min(WIDE, o.columns - i));
    });
}

} // namespace plait
