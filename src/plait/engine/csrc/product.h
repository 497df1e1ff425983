// Products of activations with packed matrices: Y (n, rows) = X (n, columns) W^T, and what happens to Y at once.
//
// A row's sums are made in the same order whatever rows are beside it and however many threads there are, so a token
// has the same logits alone, in a batch, in a chunk of its prompt, and when a draft of it is verified: bit for bit.
#pragma once
#include "formats.h"
#include "lanes.h"
#include "team.h"

namespace plait {

enum Activation : int64_t { NONE, RELU, RELU2, GELU, GELU_TANH, QUICK_GELU, SILU, TANH, ACTIVATIONS };

PLAIT_INLINE Lanes activate(int64_t kind, Lanes x) {
    Lanes zero = broadcast(0.f), one = broadcast(1.f), half_x = x * broadcast(0.5f);
    auto tail = [x](Lanes y) { return zero_below(x, broadcast(-5.5f), y); }; // 1 + erf is below float32's precision
    switch (kind) {
    case RELU: return max(zero, x);
    case RELU2: return max(zero, x) * max(zero, x);
    case GELU: return tail(half_x * (one + erf(x * broadcast(0.70710678f))));
    case GELU_TANH: return tail(half_x * (one + tanh(broadcast(0.79788456f) * fma(broadcast(0.044715f) * x * x, x, x))));
    case QUICK_GELU: return x * sigmoid(broadcast(1.702f) * x);
    case SILU: return x * sigmoid(x);
    case TANH: return tanh(x);
    default: return x;
    }
}

// target = activation(sum + bias) * scale, or with `add` that plus skip * target. Given over from Python as it stands.
struct Epilogue {
    const float *bias = nullptr; // (rows,)
    int64_t activation = NONE;
    int64_t add = 0;
    float skip = 1, scale = 1;
};

// Bytes that product() needs for the activations of n rows rounded to integers, 64-byte aligned; 0 for F32 and BF16.
int64_t scratch_bytes(int64_t format, int64_t n, int64_t columns);

// Called by every member of a running team, with the same arguments; row i of X is at x + i * x_stride, of Y likewise.
// It ends without a barrier: there has to be one before Y is read, or X or the scratch is written again.
// `own`: the scratch is each member's own, who rounds all of X for itself: less to do than a barrier, where rows are few.
void product(Worker &worker, const Matrix &w, const float *x, int64_t x_stride, int64_t n, float *y, int64_t y_stride,
             const Epilogue &epilogue, void *scratch, bool own = false);

// out (columns,) = row `row` of W, times scale: an embedding from a tied table.
void unpack_row(const Matrix &w, int64_t row, float *out, float scale);

} // namespace plait
