// The packed formats of a matrix W (rows = outputs, columns = inputs); plait/engine/packed.py says the same, a test
// compares them. W is cut into panels of 16 rows, interleaved over the inputs, so that one load feeds 16 lanes:
//
//   F32   K x           { f32 w[16] }
//   BF16  ceil(K/2)  x  { bf16 w[16 rows][2 inputs] }
//   I8    ceil(K/32) x  { f16 scale[16]; i8 q[16 pairs][16 rows][2 inputs] }            w = scale * q
//   I8W   ceil(K/16) x  { f32 scale[16]; i8 q[8 pairs][16 rows][2 inputs] }             w = scale * q
//   I4    ceil(K/32) x  { f16 scale[16]; u8 q[4][16 rows][4] }                          w = scale * (q - 8)
//   I4M   ceil(K/32) x  { f16 scale[16]; f16 min[16]; u8 q[4][16 rows][4] }             w = scale * q + min
//   I4MW  ceil(K/32) x  { f32 scale[16]; f32 min[16]; u8 q[4][16 rows][4] }             w = scale * q + min
//
// Byte q[v][row][j] of int4 holds input 4v+j of its group in the low half, input 16+4v+j in the high half. Rows and
// inputs that the matrix does not have are there with scale 0.
#pragma once
#include <cstddef>
#include <cstdint>

namespace plait {

enum Format : int64_t { F32, BF16, I8, I8W, I4, I4M, I4MW, FORMATS };

constexpr int64_t PANEL = 16; // rows

struct Layout {
    int64_t inputs; // of a group
    int64_t bytes;  // that a group takes in a panel
};

constexpr Layout LAYOUTS[FORMATS] = {{1, 64}, {2, 64}, {32, 544}, {16, 320}, {32, 288}, {32, 320}, {32, 384}};

constexpr int64_t groups(int64_t format, int64_t columns) {
    return (columns + LAYOUTS[format].inputs - 1) / LAYOUTS[format].inputs;
}

constexpr int64_t panels(int64_t rows) { return (rows + PANEL - 1) / PANEL; }

constexpr int64_t panel_bytes(int64_t format, int64_t columns) {
    return groups(format, columns) * LAYOUTS[format].bytes;
}

// A packed matrix; the bytes of panel p follow those of p-1. Given over from Python as it stands.
struct Matrix {
    int64_t format, rows, columns;
    const uint8_t *data;
};

} // namespace plait
