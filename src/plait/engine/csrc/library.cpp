// The C interface of products and of the team, for ctypes. Arguments are checked in plait/engine/kernels.py.
#include "learn.h"
#include "product.h"

using namespace plait;

// The only names that the library shows.
#pragma GCC visibility push(default)
extern "C" {

// Raised with every change of a struct or signature that Python knows; a function that is new is missed by its name.
int64_t plait_abi() { return 2; }

const char *plait_backend() { return BACKEND; }

// Whether the machine has what a backend is compiled for; asked of the portable library, which every machine can load.
int64_t plait_machine_has(int64_t level) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vnni");
    return level == 0 || (level == 1 && avx2) || (level == 2 && avx512);
#else
    return level == 0;
#endif
}

int64_t plait_panel_bytes(int64_t format, int64_t columns) { return panel_bytes(format, columns); }

int64_t plait_scratch_bytes(int64_t format, int64_t n, int64_t columns) { return scratch_bytes(format, n, columns); }

Team *plait_team(int64_t members) { return new Team(int(members)); }

Team *plait_team_borrowed(int64_t members, const OpenMP *openmp) { return new Team(int(members), *openmp); }

void plait_team_end(Team *team) { delete team; }

int64_t plait_team_members(const Team *team) { return team->members(); }

void plait_product(Team *team, const Matrix *w, const float *x, int64_t x_stride, int64_t n, float *y, int64_t y_stride,
                   const Epilogue *epilogue, void *scratch) {
    auto job = [&](Worker &worker) { product(worker, *w, x, x_stride, n, y, y_stride, *epilogue, scratch); };
    team->run([](Worker &worker, void *f) { (*(decltype(job) *)f)(worker); }, &job);
}

void plait_unpack_rows(Team *team, const Matrix *w, const int64_t *rows, int64_t n, float *out, int64_t stride, float scale) {
    auto job = [&](Worker &worker) {
        worker.share(n, 1, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) unpack_row(*w, rows[i], out + i * stride, scale);
        });
    };
    team->run([](Worker &worker, void *f) { (*(decltype(job) *)f)(worker); }, &job);
}

// What Python hands over of training's kernels: learn.h
int64_t plait_learn_bytes() { return sizeof(Learn); }

void plait_attend_learn(Team *team, const Learn *o, int64_t backward) {
    auto job = [&](Worker &worker) { backward ? attend_backward(worker, *o) : attend_forward(worker, *o); };
    team->run([](Worker &worker, void *f) { (*(decltype(job) *)f)(worker); }, &job);
}

void plait_activate_learn(Team *team, int64_t activation, const float *x, int64_t n, float *y, float *slope) {
    auto job = [&](Worker &worker) { activate_forward(worker, activation, x, n, y, slope); };
    team->run([](Worker &worker, void *f) { (*(decltype(job) *)f)(worker); }, &job);
}

void plait_orthogonal_learn(Team *team, const Orthogonal *o) {
    auto job = [&](Worker &worker) { orthogonalise(worker, *o); };
    team->run([](Worker &worker, void *f) { (*(decltype(job) *)f)(worker); }, &job);
}

void plait_slope_learn(Team *team, const Slope *o) {
    auto job = [&](Worker &worker) { slope_logits(worker, *o); };
    team->run([](Worker &worker, void *f) { (*(decltype(job) *)f)(worker); }, &job);
}

} // extern "C"
#pragma GCC visibility pop
