// A step: what Python hands over. A program is an array of operations, made once; a pass is filled for every step.
// plait/engine/structs.py has the same structures for ctypes.
#pragma once
#include "formats.h"
#include "team.h"

namespace plait {

enum Kind : int64_t { EMBED, NORM, LINEAR, CLAMP, ROTATE, STORE, ATTEND, ACTIVATE, GATE, ADD, TAKE, CAP, ROUTE, EXPERTS };

// Columns of a register, from `start` on.
struct View { int64_t reg, start, width; };

struct Embed { View target; const Matrix *table; const float *positions, *types; int64_t offset; float scale; };
// `lines`: how many runs of `width` columns have a weight of their own before the weights repeat. 1 + w is in the weight.
struct Norm { View target, source; int64_t width, lines, centred; const float *weight, *bias; float eps; };
struct Linear { View target, source; const Matrix *matrix; const float *bias; int64_t activation, add; float skip, scale; };
struct Clamp { View target; float limit; };
struct Rotate { View target; int64_t d_head, turns, interleaved; };
struct Store { View keys, values; int64_t space, layer, d_head; };
struct Attend {
    View target, queries;
    int64_t space, layer, heads, kv_heads, d_head, causal, window; // window 0: none
    const float *slopes;                                           // (heads,), or null: ALiBi's
    const float *relative;                                         // (heads, 2 * reach + 1), or null: by clamped distance
    const float *sinks; int64_t reach;                             // (heads,), or null
    float scale, softcap;                                          // softcap 0: none
};
struct Activate { View target; int64_t activation; };
struct Gate { View target, up; int64_t activation; float limit, offset; }; // limit infinite: none
struct Add { View target, source; float skip, scale; };
struct Take { View target, source; };
struct Cap { View target; float scale, softcap; };
struct Route {
    View target;
    const float *score_bias; // (experts,), or null
    int64_t sigmoid, per_token, groups, top_groups, renormalize;
    float scale;
};
struct Experts {
    View target, source, routes, shared, shared_gate; // reg -1: there is none
    const Matrix *gate, *up, *down;                   // one an expert; gate null: none
    const float *gate_bias, *up_bias, *down_bias;     // (experts, out), or null
    int64_t n_experts, per_token, activation;
    float limit, offset;
};

// `wait_few`, `wait_many`: a barrier is needed before it, in a pass of few rows and in one of many; waits.py finds out where.
struct Operation { int64_t kind; const void *fields; int64_t wait_few, wait_many; };

// Pages of one space, as pages.py lays them out, and the sequences in them.
struct Held {
    const void *const *keys, *const *values; // one a layer: (pages, g, d, 16) and (pages, g, 16, D)
    const int32_t *positions;                // (pages, 16)
    const int32_t *const *tables;            // one a sequence
    const int32_t *lengths;                  // (sequences,)
    int64_t bfloat;
};

struct Turns { const float *table; const int32_t *lines; int64_t width; }; // a line: cosines, then sines

struct Pass {
    int64_t rows, n_sequences, n_taken;
    const int32_t *tokens, *positions, *orders, *sequences, *begins, *taken, *types; // types null: all 0
    float *const *registers;
    const Turns *turns;
    Held spaces[3];
};

// `kept`: where a register lies in each member's own memory, in passes of few rows; -1 where all share one.
struct Register { int64_t width, taken, kept; };

struct Program {
    const Operation *operations;
    int64_t n_operations;
    const Register *registers;
    int64_t n_registers, kept_width; // of all kept registers together
};

constexpr int64_t FEW = 4; // up to so many rows norms are computed by every member for itself

} // namespace plait
