// The executor: all operations of a program in one run of the team, with as few barriers as their results allow.
//
// Three ways to divide an operation:
//   wide    products and attention, which divide themselves, and what reads other rows than it writes
//   by row  the rest: each member has the same rows in all of them, so that they need no barrier between them
//   kept    in a pass of few rows, a norm whose target is a kept register: every member computes all of it for itself,
//           in its own memory, and goes on without a barrier
#include "attend.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

namespace plait {

namespace {

constexpr int64_t CHUNK = 4096; // columns of logits that are capped at a time

// Floats of memory that experts need for n rows: each member's own, for rounded rows and for lists, and that of all.
struct ExpertsNeed {
    int64_t d, width, wide; // of a row, of what an expert makes of it, and of that with its gate
    int64_t rounded, own, shared;
    ExpertsNeed(const Experts &o, int64_t n)
        : d(o.target.width), width(o.up->rows), wide(o.gate ? 2 * width : width), rounded(0) {
        for (const Matrix *w : {o.gate, o.up, o.down})
            for (int64_t e = 0; w && e < o.n_experts; ++e)
                rounded = std::max(rounded, scratch_bytes(w[e].format, n, w[e].columns) / 4);
        rounded = (rounded + 15) / 16 * 16;
        own = rounded + o.n_experts + 1 + n * (2 * o.per_token + 1); // an int32 is as large as a float
        shared = n * o.per_token * (d + wide);
    }
};

// One pass under way, as one member sees it.
class Member {
  public:
    Member(const Program &program, const Pass &pass, Worker &worker, float *own, float *shared, std::atomic<int32_t> *done)
        : program(program), pass(pass), worker(worker), own(own), shared(shared), done(done), few(pass.rows <= FEW) {}

    void run() {
        for (int64_t i = 0; i < program.n_operations; ++i) {
            const Operation &operation = program.operations[i];
            if (few ? operation.wait_few : operation.wait_many) worker.barrier();
            perform(operation.kind, operation.fields);
        }
    }

  private:
    const Program &program;
    const Pass &pass;
    Worker &worker;
    float *const own, *const shared;
    std::atomic<int32_t> *const done;
    const bool few;

    bool kept(View v) const { return few && program.registers[v.reg].kept >= 0; }

    Rows at(View v) const {
        const Register &r = program.registers[v.reg];
        return {(kept(v) ? own + r.kept * FEW : pass.registers[v.reg]) + v.start, r.width};
    }

    // f(row) for this member's rows of a register.
    template <class F> void by_row(View target, F f) const {
        const int64_t n = program.registers[target.reg].taken ? pass.n_taken : pass.rows;
        const int64_t first = kept(target) ? 0 : n * worker.member / worker.members;
        const int64_t last = kept(target) ? n : n * (worker.member + 1) / worker.members;
        for (int64_t row = first; row < last; ++row) f(row);
    }

    void perform(int64_t kind, const void *fields) {
        switch (kind) {
        case EMBED: return run(*(const Embed *)fields);
        case NORM: return run(*(const Norm *)fields);
        case LINEAR: return run(*(const Linear *)fields);
        case CLAMP: return run(*(const Clamp *)fields);
        case ROTATE: return run(*(const Rotate *)fields);
        case STORE: return run(*(const Store *)fields);
        case ATTEND: return run(*(const Attend *)fields);
        case ACTIVATE: return run(*(const Activate *)fields);
        case GATE: return run(*(const Gate *)fields);
        case ADD: return run(*(const Add *)fields);
        case TAKE: return run(*(const Take *)fields);
        case CAP: return run(*(const Cap *)fields);
        case ROUTE: return run(*(const Route *)fields);
        case EXPERTS: return run(*(const Experts *)fields);
        }
    }

    void run(const Embed &o) {
        Rows y = at(o.target);
        by_row(o.target, [&](int64_t row) { embed(o, pass, row, y.row(row)); });
    }
    void run(const Norm &o) {
        Rows x = at(o.source), y = at(o.target);
        by_row(o.target, [&](int64_t row) { norm(o, x.row(row), y.row(row)); });
    }
    void run(const Linear &o) {
        Rows x = at(o.source), y = at(o.target);
        const int64_t n = program.registers[o.target.reg].taken ? pass.n_taken : pass.rows;
        const Epilogue epilogue{o.bias, o.activation, o.add, o.skip, o.scale};
        product(worker, *o.matrix, x.data, x.stride, n, y.data, y.stride, epilogue, few ? own_scratch() : shared, few);
    }
    void run(const Clamp &o) {
        Rows x = at(o.target);
        by_row(o.target, [&](int64_t row) { limit(o, x.row(row)); });
    }
    void run(const Rotate &o) {
        Rows x = at(o.target);
        by_row(o.target, [&](int64_t row) { rotate(o, pass.turns[o.turns], row, x.row(row)); });
    }
    void run(const Store &o) {
        Rows k = at(o.keys), v = at(o.values);
        auto keep_row = pass.spaces[o.space].bfloat ? keep<uint16_t> : keep<float>;
        by_row(o.keys, [&](int64_t row) { keep_row(o, pass, row, k.row(row), v.row(row)); });
    }
    void run(const Attend &o) { Attention(o, pass, worker, at(o.queries), at(o.target), own_scratch(), shared, done).run(); }
    void run(const Activate &o) {
        Rows x = at(o.target);
        by_row(o.target, [&](int64_t row) { fire(o, x.row(row)); });
    }
    void run(const Gate &o) {
        Rows x = at(o.target), up = at(o.up);
        by_row(o.target, [&](int64_t row) { gate(o.activation, o.limit, o.offset, o.target.width, x.row(row), up.row(row), x.row(row)); });
    }
    void run(const Route &o) {
        Rows x = at(o.target);
        by_row(o.target, [&](int64_t row) { route(o, x.row(row), own_scratch()); });
    }

    // Rows are gathered by expert, every expert that has some multiplies them, and each row adds up what was made of it.
    void run(const Experts &o) {
        Rows x = at(o.source), routes = at(o.routes), y = at(o.target);
        const ExpertsNeed need(o, pass.rows);
        const int64_t n = pass.rows, k = o.per_token, d = need.d, width = need.width, wide = need.wide;
        // Every member makes the same lists: where an expert's rows start, which they are, and where a row's experts put it.
        int32_t *starts = (int32_t *)(own_scratch() + need.rounded), *rows = starts + o.n_experts + 1;
        int32_t *places = rows + n * k, *filled = places + n * k, pairs = 0;
        std::fill_n(filled, n, 0);
        starts[0] = 0;
        for (int64_t e = 0; e < o.n_experts; starts[++e] = pairs) {
            for (int64_t row = 0; row < n; ++row)
                if (routes.row(row)[e] != 0.f) places[row * k + filled[row]++] = pairs, rows[pairs++] = int32_t(row);
        }
        auto mine = [&](auto f) {
            for (int64_t i = int64_t(pairs) * worker.member / worker.members; i < int64_t(pairs) * (worker.member + 1) / worker.members; ++i)
                f(i);
        };
        float *gathered = shared, *hidden = shared + n * k * d;
        auto multiply = [&](const Matrix *w, const float *bias, const float *from, int64_t stride, float *to, int64_t to_stride,
                            int64_t activation) {
            for (int64_t e = 0; e < o.n_experts; ++e) {
                const int64_t start = starts[e], count = starts[e + 1] - start;
                const Epilogue end{bias ? bias + e * w[e].rows : nullptr, activation};
                if (count) product(worker, w[e], from + start * stride, stride, count, to + start * to_stride, to_stride, end, own_scratch(), true);
            }
        };
        const float *from = x.data;
        if (n > 1) {
            mine([&](int64_t i) { std::copy_n(x.row(rows[i]), d, gathered + i * d); });
            worker.barrier();
            from = gathered;
        }
        const int64_t stride = n > 1 ? d : 0;
        if (o.gate) {
            multiply(o.gate, o.gate_bias, from, stride, hidden, wide, NONE);
            multiply(o.up, o.up_bias, from, stride, hidden + width, wide, NONE);
            worker.barrier();
            mine([&](int64_t i) {
                float *h = hidden + i * wide;
                gate(o.activation, o.limit, o.offset, width, h, h + width, h);
            });
        } else {
            multiply(o.up, o.up_bias, from, stride, hidden, wide, o.activation);
        }
        worker.barrier();
        multiply(o.down, o.down_bias, hidden, wide, gathered, d, NONE);
        worker.barrier();
        by_row(o.target, [&](int64_t row) {
            std::fill_n(y.row(row), d, 0.f);
            auto take = [&](const float *from, float much) {
                by_lanes(d, [&](int64_t i, int64_t left) {
                    store(y.row(row) + i, fma(broadcast(much), load(from + i, left), load(y.row(row) + i, left)), left);
                });
            };
            for (int64_t i = 0; i < filled[row]; ++i) {
                const int64_t place = places[row * k + i];
                const int64_t e = std::upper_bound(starts, starts + o.n_experts + 1, int32_t(place)) - starts - 1;
                take(gathered + place * d, routes.row(row)[e]);
            }
            if (o.shared.reg >= 0) {
                const float much = o.shared_gate.reg < 0 ? 1.f : 1.f / (1.f + std::exp(-*at(o.shared_gate).row(row)));
                take(at(o.shared).row(row), much);
            }
        });
    }
    void run(const Add &o) {
        Rows x = at(o.source), y = at(o.target);
        by_row(o.target, [&](int64_t row) { add(o, x.row(row), y.row(row)); });
    }
    void run(const Take &o) {
        Rows x = at(o.source), y = at(o.target);
        by_row(o.target, [&](int64_t row) { std::copy_n(x.row(pass.taken[row]), o.target.width, y.row(row)); });
    }
    void run(const Cap &o) {
        Rows x = at(o.target);
        const int64_t width = o.target.width, chunks = (width + CHUNK - 1) / CHUNK;
        const int64_t n = program.registers[o.target.reg].taken ? pass.n_taken : pass.rows;
        worker.share(n * chunks, 1, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) {
                const int64_t column = i % chunks * CHUNK;
                cap(o, std::min(CHUNK, width - column), x.row(i / chunks) + column);
            }
        });
    }

    float *own_scratch() const { return own + (program.kept_width * FEW + 15) / 16 * 16; }
};

// Floats of memory that a pass needs: of each member, and of all together.
struct Need {
    int64_t own = 0, shared = 0;
    Need(const Program &program, const Pass &pass, int64_t members) {
        for (int64_t i = 0; i < program.n_operations; ++i) {
            const Operation &operation = program.operations[i];
            if (operation.kind == LINEAR) {
                const Linear &o = *(const Linear *)operation.fields;
                int64_t &where = pass.rows <= FEW ? own : shared;
                where = std::max(where, scratch_bytes(o.matrix->format, pass.rows, o.matrix->columns) / 4);
            } else if (operation.kind == ATTEND) {
                const Attend &o = *(const Attend *)operation.fields;
                const Cut cut(o, pass, members);
                own = std::max(own, cut.member_floats(o));
                shared = std::max(shared, cut.shared_floats());
            } else if (operation.kind == ROUTE) {
                own = std::max(own, route_floats(*(const Route *)operation.fields));
            } else if (operation.kind == EXPERTS) {
                const ExpertsNeed needed(*(const Experts *)operation.fields, pass.rows);
                own = std::max(own, needed.own);
                shared = std::max(shared, needed.shared);
            }
        }
        own = (own + program.kept_width * FEW + 15 + 31) / 16 * 16;
        shared = (shared + 15) / 16 * 16;
    }
};

// A program, and memory for its passes, which grows.
class Executor {
  public:
    Executor(Team *team, const Program &program) : team(team), program(program), done(size_t(4 * team->members())) {}
    ~Executor() { release(); }

    void run(const Pass &pass) {
        std::lock_guard<std::mutex> lock(running);
        const Need need(program, pass, team->members());
        reserve(need.shared + need.own * team->members());
        auto job = [&](Worker &worker) {
            float *own = memory + need.shared + need.own * worker.member;
            Member(program, pass, worker, own, memory, done.data()).run();
        };
        team->run([](Worker &worker, void *f) { (*(decltype(job) *)f)(worker); }, &job);
    }

  private:
    Team *const team;
    const Program &program;
    std::vector<std::atomic<int32_t>> done; // zeros between attentions
    std::mutex running;
    float *memory = nullptr;
    int64_t floats = 0;

    void release() { ::operator delete(memory, std::align_val_t(64)); }
    void reserve(int64_t wanted) {
        if (wanted <= floats) return;
        release();
        memory = nullptr, floats = 0;
        memory = (float *)::operator new(size_t(wanted) * sizeof(float), std::align_val_t(64));
        floats = wanted;
    }
};

} // namespace

} // namespace plait

#pragma GCC visibility push(default)
extern "C" {

// Sizes of what Python lays out too, so that it can compare them.
void plait_step_sizes(int64_t *sizes) {
    using namespace plait;
    const size_t all[] = {sizeof(Embed), sizeof(Norm), sizeof(Linear), sizeof(Clamp), sizeof(Rotate), sizeof(Store),
                          sizeof(Attend), sizeof(Activate), sizeof(Gate), sizeof(Add), sizeof(Take), sizeof(Cap), sizeof(Route), sizeof(Experts),
                          sizeof(Pass), sizeof(Program)};
    for (size_t size : all) *sizes++ = int64_t(size);
}

// The program, and all that it points to, must outlive the executor, and the team too.
void *plait_executor(plait::Team *team, const plait::Program *program) { return new plait::Executor(team, *program); }

void plait_executor_end(void *executor) { delete (plait::Executor *)executor; }

// 0, or 1 where there is not enough memory.
int64_t plait_executor_run(void *executor, const plait::Pass *pass) {
    try {
        ((plait::Executor *)executor)->run(*pass);
        return 0;
    } catch (const std::bad_alloc &) {
        return 1;
    }
}

} // extern "C"
#pragma GCC visibility pop
