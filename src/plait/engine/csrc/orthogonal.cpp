#include "learn.h"
#include "tiles.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace plait {

namespace {

// One member's memory: a matrix stays in its second cache through all steps.
class Iteration {
  public:
    explicit Iteration(const Orthogonal &o)
        : o(o), R(whole(o.rows)), C(whole(o.columns)), x(o.rows * C), gram(o.rows * R), q(o.rows * R), strips(std::max(R, C) * C) {}

    void run(float *matrix) {
        each_row([&](int64_t i) { copy(matrix + i * o.columns, o.columns, x.data() + i * C); });
        Lanes squares = broadcast(0.f);
        for (size_t i = 0; i < x.size(); i += WIDE) squares = fma(load(&x[i]), load(&x[i]), squares);
        const Lanes inverse = broadcast(1.f / std::max(std::sqrt(sum(squares)), o.eps));
        for (size_t i = 0; i < x.size(); i += WIDE) store(&x[i], load(&x[i]) * inverse);
        for (int64_t step = 0; step < o.steps; ++step) {
            lay_across();
            multiply(x.data(), C, o.columns, R, gram.data());
            lay(gram.data(), R);
            multiply(gram.data(), R, o.rows, R, q.data());
            const Lanes b = broadcast(o.b), c = broadcast(o.c), a = broadcast(o.a);
            for (size_t i = 0; i < q.size(); i += WIDE) store(&q[i], fma(c, load(&q[i]), b * load(&gram[i])));
            lay(x.data(), C);
            for (size_t i = 0; i < x.size(); i += WIDE) store(&x[i], a * load(&x[i]));
            multiply(q.data(), R, o.rows, C, x.data(), true);
        }
        each_row([&](int64_t i) {
            for (int64_t c = 0; c < o.columns; c += WIDE) store(matrix + i * o.columns + c, load(&x[i * C + c]), o.columns - c);
        });
    }

  private:
    const Orthogonal &o;
    const int64_t R, C;
    std::vector<float> x, gram, q, strips; // rows are a whole number of 16

    template <class F> void each_row(F f) {
        for (int64_t i = 0; i < o.rows; ++i) f(i);
    }

    static void copy(const float *from, int64_t n, float *to) {
        for (int64_t c = 0; c < n; c += WIDE) store(to + c, load(from + c, n - c));
    }

    // `rows` rows of m, 16 columns side by side.
    void lay(const float *m, int64_t width) {
        for (int64_t j = 0; j < width; j += WIDE)
            for (int64_t k = 0; k < o.rows; ++k) store(&strips[j * o.rows + k * WIDE], load(m + k * width + j));
    }

    // X^T, 16 columns side by side, in squares: what is read and what is written are both near.
    void lay_across() {
        for (int64_t j = 0; j < R; j += WIDE)
            for (int64_t k = 0; k < o.columns; k += WIDE) {
                const int64_t n = std::min(WIDE, o.columns - k);
                float *to = &strips[j * o.columns + k * WIDE];
                for (int64_t c = 0; c < WIDE; ++c) {
                    const float *from = &x[std::min(j + c, o.rows - 1) * C + k];
                    for (int64_t i = 0; i < n; ++i) to[i * WIDE + c] = from[i];
                }
            }
    }

    // to (rows, width) = a (rows, depth) times the strips, or that more.
    void multiply(const float *a, int64_t a_row, int64_t depth, int64_t width, float *to, bool add = false) {
        constexpr int64_t DEPTH = 256; // of a strip, at once: half of a first cache
        for (int64_t k = 0; k < depth; k += DEPTH)
            for (int64_t j = 0; j < width; j += WIDE)
                for (int64_t i = 0; i < o.rows; i += TILE)
                    tile(std::min<int64_t>(TILE, o.rows - i), a + i * a_row + k, a_row, 1, &strips[j * depth + k * WIDE], WIDE,
                         std::min(DEPTH, depth - k), to + i * width + j, width, add || k > 0);
    }
};

} // namespace

void orthogonalise(Worker &worker, const Orthogonal &o) {
    Iteration iteration(o);
    worker.share(o.matrices, 1, [&](int64_t first, int64_t last) {
        for (int64_t m = first; m < last; ++m) iteration.run(o.x + m * o.rows * o.columns);
    });
}

} // namespace plait
