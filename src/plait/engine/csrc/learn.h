// Attention and activations as training wants them: with their gradients, over plain tensors of float32.
#pragma once
#include "product.h"

namespace plait {

// A tensor (batch, heads, rows, d): number d of a row follows number d - 1. Given over from Python as it stands, as is
// all of the next struct.
struct Heads {
    float *data;
    int64_t batch, head, row; // strides
    float *at(int64_t b, int64_t h, int64_t i) const { return data + b * batch + h * head + i * row; }
};

// softmax(scale * Q K^T) V and what it needs to be gone through backwards.
struct Learn {
    int64_t batch, heads, kv_heads, rows, keys, d;
    float scale;
    int64_t causal;         // row i sees keys 0 to i
    const uint8_t *allowed; // or null: (batch or 1, 1, rows, keys)
    int64_t allowed_batch, allowed_row;
    const float *kept;      // or null: what the pattern is multiplied by, dropout's; (rows, keys) of each head...
    const int64_t *starts;  // ... begin here, (batch, heads)
    Heads query, key, value, out;
    float *sums;            // (batch, heads, rows): the logarithm of the sum of exponentials
    Heads d_out, d_query, d_key, d_value; // gradients: all but the first are written
};

// Called by every member of a running team. It ends without a barrier.
void attend_forward(Worker &worker, const Learn &o);
void attend_backward(Worker &worker, const Learn &o);

// y = activation(x) and slope = activation'(x), n of them, for GELU, GELU_TANH and SILU.
void activate_forward(Worker &worker, int64_t activation, const float *x, int64_t n, float *y, float *slope);

// Matrices (rows, columns), one after the other, rows <= columns: each is brought near the nearest one with orthogonal rows by
// `steps` of  X <- a X + (b G + c G G) X,  G = X X^T,  after its norm became 1.
struct Orthogonal {
    float *x;
    int64_t matrices, rows, columns, steps;
    float a, b, c, eps;
};

void orthogonalise(Worker &worker, const Orthogonal &o);

// Logits of `columns` places, one below the other (outputs, columns), become the slopes of each place's cross-entropy
// loss by them; nothing is done to them where `keep`.
struct Slope {
    float *logits;
    int64_t outputs, columns, row; // `row`: the stride
    const int64_t *targets;        // (columns)
    float smoothing, z_loss;
    int64_t keep;
    float *losses;                 // (columns)
};

// loss = lse - (1 - s) y_target - s mean(y) + z lse^2,  slope = (1 + 2 z lse) softmax(y) - s / outputs - (1 - s) at the target.
void slope_logits(Worker &worker, const Slope &o);

} // namespace plait
