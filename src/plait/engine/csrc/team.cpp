#include "team.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace plait {

namespace {

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

constexpr int SPINS = 1000;       // at a barrier, before yielding: some 10 us
constexpr int IDLE_SPINS = 4000;  // between runs, before sleeping: some 40 us

} // namespace

struct Crew {
    // Each on a cache line of its own: all are written while others are read.
    alignas(64) std::atomic<uint64_t> taken{0};      // number of the share << 32 | its first item that nobody has
    alignas(64) std::atomic<int> arrived{0};         // at the barrier
    alignas(64) std::atomic<uint32_t> barriers{0};   // that are over
    alignas(64) std::atomic<uint32_t> runs{0};       // that have begun
    std::atomic<int> sleepers{0};
    Job job = nullptr; // null: the end
    void *argument = nullptr;
    pid_t process = getpid();
    std::mutex running, sleeping;
    std::condition_variable wake;
    std::vector<std::thread> threads;
    int members = 1;
    const OpenMP borrowed{};

    Crew(int wanted, OpenMP openmp) : members(wanted), borrowed(openmp) {}

    explicit Crew(int wanted) {
        try {
            for (int i = 1; i < wanted; ++i) threads.emplace_back([this, i] { serve(i); });
        } catch (const std::system_error &) { // no more threads: as many as there are
        }
        members = int(threads.size()) + 1; // seen by the others with the first run
    }

    void start(Job what, void *with) {
        job = what;
        argument = with;
        taken.store(0, std::memory_order_relaxed);
        runs.fetch_add(1); // sequentially consistent, as is `sleepers`: one of the two sides sees the other
        if (sleepers.load()) {
            std::lock_guard<std::mutex> lock(sleeping);
            wake.notify_all();
        }
    }

    void serve(int member) {
        for (uint32_t seen = 0;; ++seen) {
            for (int i = 0; i < IDLE_SPINS && runs.load(std::memory_order_acquire) == seen; ++i) pause();
            if (runs.load(std::memory_order_acquire) == seen) {
                std::unique_lock<std::mutex> lock(sleeping);
                sleepers.fetch_add(1);
                wake.wait(lock, [&] { return runs.load() != seen; });
                sleepers.fetch_sub(1);
            }
            if (!job) return;
            run(member, members);
        }
    }

    // With the threads of another library, of which there may be fewer than were asked for.
    void run_borrowed() {
        auto each = [](void *crew) {
            auto *self = (Crew *)crew;
            self->run(self->borrowed.number(), self->borrowed.count());
        };
        borrowed.parallel(each, this, unsigned(members), 0);
    }

    void run(int member, int present) {
        Worker worker(this, member, present);
        job(worker, argument);
        worker.barrier(); // after which nobody touches the job
    }

    void barrier(int present) {
        uint32_t now = barriers.load(std::memory_order_relaxed);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) == present - 1) {
            arrived.store(0, std::memory_order_relaxed);
            barriers.store(now + 1, std::memory_order_release);
            return;
        }
        for (int i = 0; barriers.load(std::memory_order_acquire) == now; ++i) {
            if (i < SPINS) pause();
            else sched_yield();
        }
    }
};

void Worker::barrier() {
    if (members > 1) crew_->barrier(members);
}

bool Worker::take(int64_t items, int64_t least, int64_t &first, int64_t &last) {
    uint64_t now = crew_->taken.load(std::memory_order_relaxed); // order between shares is the barriers' business
    for (;;) {
        int32_t ahead = int32_t(uint32_t(now >> 32) - shares_);
        if (ahead > 0) return false; // others are at a later share: nothing is left of this one
        int64_t next = ahead == 0 ? int64_t(now & 0xffffffff) : 0, left = items - next;
        if (left <= 0) return false;
        int64_t piece = left / (2 * members);
        piece = piece > least ? piece : least;
        piece = piece < left ? piece : left;
        if (crew_->taken.compare_exchange_weak(now, uint64_t(shares_) << 32 | uint64_t(next + piece))) {
            first = next;
            last = next + piece;
            return true;
        }
    }
}

Team::Team(int members) : crew_(new Crew(members)) {}

Team::Team(int members, OpenMP borrowed) : crew_(new Crew(members, borrowed)) {}

Team::~Team() {
    if (crew_->process != getpid()) return; // a forked child: the threads, and the locks, are the parent's
    crew_->start(nullptr, nullptr);
    for (std::thread &thread : crew_->threads) thread.join();
    delete crew_;
}

void Team::run(Job job, void *argument) {
    if (crew_->process != getpid() && !crew_->borrowed.parallel)
        crew_ = new Crew(crew_->members); // the parent's cannot even be freed here
    std::lock_guard<std::mutex> lock(crew_->running);
    crew_->start(job, argument);
    if (crew_->borrowed.parallel && crew_->members > 1) crew_->run_borrowed();
    else crew_->run(0, crew_->members);
}

int Team::members() const { return crew_->members; }

} // namespace plait
