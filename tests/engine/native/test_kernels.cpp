// Products and teams under the sanitizers: every buffer has its exact size, so that one byte too far is seen.
//
// Numbers are chosen so that rounding the activations loses nothing: they are whole, and each group has the largest.
#include "product.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace plait;

#define CHECK(what)                                                          \
    if (!(what)) {                                                           \
        std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #what);       \
        std::exit(1);                                                        \
    }

static std::mt19937 draw(1);
static int number(int low, int high) { return low + int(draw() % unsigned(high - low + 1)); }

template <class F> void on(Team &team, F f) {
    team.run([](Worker &worker, void *g) { (*(F *)g)(worker); }, &f);
}

static std::vector<uint8_t> panels_of(int64_t format, int64_t rows, int64_t columns) {
    const Layout layout = LAYOUTS[format];
    std::vector<uint8_t> data(size_t(panels(rows) * panel_bytes(format, columns)));
    for (size_t group = 0; group < data.size(); group += size_t(layout.bytes)) {
        uint8_t *p = data.data() + group;
        for (int64_t i = 0; i < layout.bytes; ++i) p[i] = uint8_t(draw());
        const bool wide = format == I8W || format == I4MW;
        const int numbers = format == F32 || format == I8 || format == I8W || format == I4 ? 16 : 32;
        for (int i = 0; i < numbers; ++i) { // powers of two from 1/8 to 1
            if (format == F32 || wide) {
                float scale = std::ldexp(1.f, -number(0, 3));
                std::memcpy(p + 4 * i, &scale, 4);
            } else { // bfloat16 and float16
                uint16_t scale = uint16_t(format == BF16 ? (127 - number(0, 3)) << 7 : (15 - number(0, 3)) << 10);
                std::memcpy(p + 2 * i, &scale, 2);
            }
        }
    }
    return data;
}

static void products() {
    for (int round = 0; round < 150; ++round) {
        const int64_t format = round % FORMATS, rows = number(1, 50), columns = number(1, 100), n = number(0, 30);
        const int64_t x_stride = columns + number(0, 3), y_stride = rows + number(0, 3);
        std::vector<uint8_t> data = panels_of(format, rows, columns);
        const Matrix w{format, rows, columns, data.data()};
        // So that the inputs are what they are rounded to: 16 bits; or where weights have 4, 8 bits and one outlier.
        const float largest = format < I4 ? 32767 : 127, outlier = 127 * 257;
        std::vector<float> x(size_t(n ? (n - 1) * x_stride + columns : 0)), y(size_t(n ? (n - 1) * y_stride + rows : 0));
        for (float &v : x) v = float(number(-127, 127));
        for (int64_t i = 0; i < n; ++i)
            for (int64_t k = 0; k < columns; k += LAYOUTS[format].inputs) x[size_t(i * x_stride + k)] = largest;
        for (int64_t i = 0; i < n && format >= I4 && columns > 80; ++i) x[size_t(i * x_stride)] = outlier;
        std::vector<uint8_t> scratch(size_t(scratch_bytes(format, n, columns)));
        std::vector<float> bias(size_t(rows), 3.f), weights(static_cast<size_t>(columns));
        Epilogue end;
        end.bias = bias.data();
        Team team(number(1, 3));
        for (int again = 0; again < 3; ++again)
            on(team, [&](Worker &worker) {
                product(worker, w, x.data(), x_stride, n, y.data(), y_stride, end, scratch.data());
                worker.barrier(); // the scratch is written again
                product(worker, w, x.data(), x_stride, n, y.data(), y_stride, end, scratch.data());
            });
        for (int64_t row = 0; row < rows; ++row) {
            unpack_row(w, row, weights.data(), 1);
            for (int64_t i = 0; i < n; ++i) {
                double right = 3, size = 3;
                for (int64_t k = 0; k < columns; ++k) {
                    right += double(weights[size_t(k)]) * x[size_t(i * x_stride + k)];
                    size += 20 * std::fabs(double(x[size_t(i * x_stride + k)]));
                }
                CHECK(std::fabs(y[size_t(i * y_stride + row)] - right) <= 1e-6 * size);
            }
        }
    }
}

static void shares() {
    for (int members = 1; members <= 3; ++members) {
        Team team(members);
        for (int round = 0; round < 200; ++round) {
            std::vector<int> first(size_t(number(0, 100))), second(first.size());
            int sum = 0;
            on(team, [&](Worker &worker) {
                worker.share(int64_t(first.size()), 3, [&](int64_t a, int64_t b) {
                    for (; a < b; ++a) ++first[size_t(a)];
                });
                worker.share(int64_t(second.size()), 1, [&](int64_t a, int64_t b) { // no barrier between: others' items
                    for (; a < b; ++a) ++second[size_t(a)];
                });
                worker.barrier();
                if (worker.member == 0)
                    for (size_t i = 0; i < first.size(); ++i) sum += first[i] + second[i];
            });
            for (int count : first) CHECK(count == 1);
            for (int count : second) CHECK(count == 1);
            CHECK(sum == 2 * int(first.size()));
        }
        usleep(2000); // all asleep
        on(team, [](Worker &worker) { worker.barrier(); });
    }
}

static void two_teams() {
    auto many = [](Team *team) {
        for (int i = 0; i < 500; ++i) {
            int sum = 0;
            on(*team, [&](Worker &worker) {
                worker.barrier();
                if (worker.member == 1) sum = 7;
                worker.barrier();
                CHECK(sum == 7);
            });
        }
    };
    Team one(2), other(2);
    std::thread a(many, &one), b(many, &other), c(many, &one); // a and c take turns
    a.join(), b.join(), c.join();
    for (int i = 0; i < 50; ++i) Team(3); // ended before it began
}

static void child() {
    Team team(3);
    on(team, [](Worker &) {});
    if (pid_t pid = fork()) {
        int status = 0;
        waitpid(pid, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    } else {
        std::atomic<int> here{0};
        on(team, [&](Worker &worker) { here += worker.members; });
        _exit(here == 9 ? 3 : 4);
    }
}

int main(int count, char **) {
    products();
    shares();
    two_teams();
    if (count == 1) child(); // not under the thread sanitizer, which forbids threads after a fork
    std::printf("%s: products and teams are right\n", BACKEND);
}
