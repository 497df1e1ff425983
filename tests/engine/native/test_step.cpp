// Programs under the sanitizers: random passes with pages, scratch and registers of exactly their size; members that ought
// to wait and do not are seen by the thread sanitizer. Results: tests/engine/test_operations.py.
#include "step.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

using namespace plait;

extern "C" {
void *plait_executor(Team *, const Program *);
void plait_executor_end(void *);
int64_t plait_executor_run(void *, const Pass *);
}

static std::mt19937 draw(2);
static int number(int low, int high) { return low + int(draw() % unsigned(high - low + 1)); }

static std::vector<float> floats(int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float &v : x) v = float(number(-100, 100)) / 100.f;
    return x;
}

// A pass with no keys: rows in one sequence, all wanted; what leaves `output` must be numbers.
static void run(const Program &program, int64_t members, int64_t output) {
    Team team{int(members)};
    void *executor = plait_executor(&team, &program);
    for (int round = 0; round < 6; ++round) {
        const int32_t rows = round ? number(0, 12) : 1;
        std::vector<int32_t> each(static_cast<size_t>(rows)), begins{0, rows}, sequence(static_cast<size_t>(rows), 0);
        for (int32_t i = 0; i < rows; ++i) each[size_t(i)] = i;
        std::vector<std::vector<float>> memory;
        std::vector<float *> addresses;
        for (int64_t r = 0; r < program.n_registers; ++r) {
            memory.push_back(floats(rows * program.registers[r].width));
            addresses.push_back(memory.back().data());
        }
        Pass pass{rows, 1, rows, each.data(), each.data(), each.data(), sequence.data(), begins.data(), each.data(), nullptr,
                  addresses.data(), nullptr, {}};
        if (plait_executor_run(executor, &pass)) std::exit(1);
        for (float y : memory[size_t(output)])
            if (std::isnan(y)) std::printf("test_step.cpp: no number\n"), std::exit(1);
    }
    plait_executor_end(executor);
}

// Experts: norm, router, routes, perhaps one that all rows take and its gate, experts, and onto the stream.
static void experts() {
    const int64_t groups = number(1, 3), n = groups * number(2, 4), top = number(1, int(groups));
    const int64_t per_token = number(1, int(top * (n / groups))), model = number(3, 40), width = number(1, 40);
    const int64_t format = number(0, FORMATS - 1);
    const bool gated = number(0, 1), biased = number(0, 1), limited = gated && number(0, 1), shared = number(0, 1);
    enum { X, NORMED, ROUTES, SHARED, SHARED_GATE, MADE };
    const Register registers[] = {{model, 0, -1}, {model, 0, 0}, {n, 0, -1}, {model, 0, -1}, {1, 0, -1}, {model, 0, -1}};

    std::vector<std::vector<uint8_t>> stored;
    stored.reserve(size_t(3 * n + 3));
    auto matrix = [&](int64_t rows, int64_t columns) {
        stored.emplace_back(size_t(panels(rows) * panel_bytes(format, columns))); // zeros: only addresses matter here
        return Matrix{format, rows, columns, stored.back().data()};
    };
    std::vector<Matrix> gates, ups, downs;
    for (int64_t e = 0; e < n; ++e)
        gates.push_back(matrix(width, model)), ups.push_back(matrix(width, model)), downs.push_back(matrix(model, width));
    const Matrix router = matrix(n, model), all = matrix(model, model), all_gate = matrix(1, model);
    const std::vector<float> weight = floats(model), logits = floats(n), score = floats(n);
    const std::vector<float> into = floats(n * width), into_too = floats(n * width), out = floats(n * model);
    const View x{X, 0, model}, normed{NORMED, 0, model}, routes{ROUTES, 0, n}, made{MADE, 0, model}, none{-1, 0, 0};
    const View taken_by_all{SHARED, 0, model}, taken_gate{SHARED_GATE, 0, 1};

    const Norm norm{normed, x, model, 1, number(0, 1), weight.data(), nullptr, 1e-5f};
    const Linear judge{routes, normed, &router, logits.data(), 0, 0, 1.f, 1.f};
    const Route route{routes, number(0, 1) ? score.data() : nullptr, groups > 1 || number(0, 1), per_token, groups, top, number(0, 1), 2.5f};
    const Linear share{taken_by_all, normed, &all, nullptr, 0, 0, 1.f, 1.f};
    const Linear share_gate{taken_gate, normed, &all_gate, nullptr, 0, 0, 1.f, 1.f};
    const Experts experts{made, normed, routes, shared ? taken_by_all : none, shared && number(0, 1) ? taken_gate : none,
                          gated ? gates.data() : nullptr, ups.data(), downs.data(), gated && biased ? into.data() : nullptr,
                          biased ? into_too.data() : nullptr, biased ? out.data() : nullptr, n, per_token, number(0, 6),
                          limited ? 0.5f : INFINITY, limited ? 1.f : 0.f};
    const Add onto{x, made, 1.f, 0.5f};
    const int64_t w = 1;
    const Operation operations[] = {{NORM, &norm, 0, 0},        {LINEAR, &judge, 0, w},  {LINEAR, &share, w, w},
                                    {LINEAR, &share_gate, w, w}, {ROUTE, &route, 0, 0},   {EXPERTS, &experts, w, w},
                                    {ADD, &onto, 0, 0}};
    run({operations, 7, registers, 6, model}, number(1, 3), X);
}

// A layer of a small decoder: norm, stacked product, rotation, store, attention, product onto the stream, gate, head.
static void layer() {
    const int64_t heads = number(1, 4), group = number(1, 3), d = 2 * number(2, 20), model = number(3, 40), ff = number(1, 40);
    const int64_t narrow = heads * d, wide = narrow * group, format = number(0, FORMATS - 1), members = number(1, 3);
    enum { X, NORMED, HEADS, MIX, HIDDEN, TAKEN };
    const Register registers[] = {{model, 0, -1}, {model, 0, 0}, {wide + 2 * narrow, 0, -1}, {wide, 0, -1}, {2 * ff, 0, -1}, {model, 1, -1}};

    std::vector<std::vector<uint8_t>> stored;
    auto matrix = [&](int64_t rows, int64_t columns) {
        stored.emplace_back(size_t(panels(rows) * panel_bytes(format, columns))); // zeros: only addresses matter here
        return Matrix{format, rows, columns, stored.back().data()};
    };
    stored.reserve(5);
    const Matrix table = matrix(10, model), qkv = matrix(wide + 2 * narrow, model), out = matrix(model, wide);
    const Matrix up = matrix(2 * ff, model), down = matrix(model, ff);
    const std::vector<float> weight = floats(model), slopes = floats(heads * group), relative = floats(heads * group * 11);
    const std::vector<float> sinks = floats(heads * group);
    const View x{X, 0, model}, normed{NORMED, 0, model}, mix{MIX, 0, wide}, q{HEADS, 0, wide}, k{HEADS, wide, narrow};
    const View v{HEADS, wide + narrow, narrow}, first{HIDDEN, 0, ff}, second{HIDDEN, ff, ff}, taken{TAKEN, 0, model};
    const bool causal = number(0, 1);

    const Embed embed{x, &table, nullptr, nullptr, 0, 1.f};
    const Norm norm{normed, x, model, 1, number(0, 1), weight.data(), nullptr, 1e-5f};
    const Linear project{{HEADS, 0, wide + 2 * narrow}, normed, &qkv, nullptr, 0, 0, 1.f, 1.f};
    const Rotate turn_q{q, d, 0, number(0, 1)}, turn_k{k, d, 0, turn_q.interleaved};
    const Store store{k, v, 0, 0, d};
    const Attend attend{mix, q, 0, 0, heads * group, heads, d, causal, number(0, 2) ? 0 : number(1, 40), number(0, 1) ? slopes.data() : nullptr,
                        number(0, 1) ? relative.data() : nullptr, number(0, 1) ? sinks.data() : nullptr, 5, 0.3f, number(0, 1) ? 2.f : 0.f};
    const Linear back{x, mix, &out, nullptr, 0, 1, 1.f, 1.f};
    const Linear widen{{HIDDEN, 0, 2 * ff}, normed, &up, nullptr, 0, 0, 1.f, 1.f};
    const bool limited = number(0, 1);
    const Gate gate{first, second, 6, limited ? 0.5f : INFINITY, limited ? 1.f : 0.f};
    const Linear shrink{x, first, &down, nullptr, 0, 1, 1.f, 1.f};
    const Take take{taken, x};
    const Cap cap{taken, 0.5f, 2.f};
    const int64_t w = 1;
    const Operation operations[] = {{EMBED, &embed, 0, 0},  {NORM, &norm, w, 0},     {LINEAR, &project, 0, w}, {ROTATE, &turn_q, w, w},
                                    {ROTATE, &turn_k, 0, 0}, {STORE, &store, 0, 0},   {ATTEND, &attend, w, w},  {LINEAR, &back, w, w},
                                    {NORM, &norm, w, w},     {LINEAR, &widen, 0, w},  {GATE, &gate, w, w},      {LINEAR, &shrink, w, w},
                                    {TAKE, &take, w, w},     {CAP, &cap, w, w}};
    const Program program{operations, 14, registers, 6, model};

    Team team{int(members)};
    void *executor = plait_executor(&team, &program);
    for (int round = 0; round < 4; ++round) {
        const int64_t sequences = number(0, 3), bfloat = number(0, 1), D = (d + 15) / 16 * 16;
        std::vector<int32_t> tokens, positions, orders, sequence, begins{0}, wanted, lengths;
        std::vector<std::vector<int32_t>> tables;
        int32_t pages = 0;
        for (int64_t s = 0; s < sequences; ++s) {
            const int length = number(0, 3) ? number(0, 40) : number(0, 300), rows = number(0, 1) ? std::min(1, length) : number(0, std::min(length, 30));
            lengths.push_back(length);
            tables.emplace_back();
            for (int p = 0; p < (length + 15) / 16; ++p) tables.back().push_back(pages++);
            for (int i = length - rows; i < length; ++i) {
                tokens.push_back(number(0, 9)), positions.push_back(i + 3), orders.push_back(i), sequence.push_back(int32_t(s));
                if (number(0, 1)) wanted.push_back(int32_t(orders.size()) - 1);
            }
            begins.push_back(int32_t(orders.size()));
        }
        const int64_t rows = int64_t(orders.size()), size = bfloat ? 2 : 4;
        std::vector<uint8_t> keys(size_t(pages * heads * d * 16 * size)), values(size_t(pages * heads * 16 * D * size));
        std::vector<int32_t> key_positions(size_t(pages * 16), 3), lines(size_t(rows), 1);
        std::vector<const int32_t *> table_of;
        for (auto &t : tables) table_of.push_back(t.data());
        const int64_t turned = d / 2 * 2;
        const std::vector<float> angles = floats(2 * turned);
        const Turns turns{angles.data(), lines.data(), turned};
        std::vector<std::vector<float>> memory;
        std::vector<float *> addresses;
        for (const Register &r : registers) {
            memory.push_back(floats((r.taken ? int64_t(wanted.size()) : rows) * r.width));
            addresses.push_back(memory.back().data());
        }
        const void *key_layers[] = {keys.data()}, *value_layers[] = {values.data()};
        Pass pass{rows, sequences, int64_t(wanted.size()), tokens.data(), positions.data(), orders.data(), sequence.data(), begins.data(),
                  wanted.data(), nullptr, addresses.data(), &turns, {}};
        pass.spaces[0] = {key_layers, value_layers, key_positions.data(), table_of.data(), lengths.data(), bfloat};
        if (plait_executor_run(executor, &pass)) std::exit(1);
        for (float y : memory[TAKEN])
            if (std::isnan(y)) std::printf("test_step.cpp: no number\n"), std::exit(1);
    }
    plait_executor_end(executor);
}

int main() {
    for (int i = 0; i < 60; ++i) layer(), experts();
    std::printf("programs: fine\n");
}
