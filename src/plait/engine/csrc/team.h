// One persistent team of threads. The caller is member 0; all run the same function and meet at barriers.
//
// Who sleeps when: inside a run, members that wait spin for a moment and then yield the core, so that a machine with
// other work on it stays usable. Between runs they spin for some tens of microseconds, because the next step of a
// decoder comes at once, and then sleep in the kernel: torch's own threads, which run in between, have the cores.
#pragma once
#include <atomic>
#include <cstdint>

namespace plait {

struct Crew; // the threads and what they share: team.cpp

// A member's view of the run that is going on.
class Worker {
  public:
    const int member, members;

    // Returns when every member is here; what each wrote before is seen by all after.
    void barrier();

    // f(first, last) for pieces of 0..items, each piece by one member; the pieces get smaller, from a share of what is
    // left down to `least`, so that a member whose core is taken away for a while does not keep the others waiting.
    // Every member calls it, with the same numbers, and goes on without waiting: what reads the results needs a barrier.
    template <class F> void share(int64_t items, int64_t least, F f) {
        if (members == 1) {
            if (items > 0) f(int64_t(0), items);
            return;
        }
        ++shares_;
        int64_t first, last;
        while (take(items, least, first, last)) f(first, last);
    }

    Worker(Crew *crew, int member, int members) : member(member), members(members), crew_(crew) {}

  private:
    bool take(int64_t items, int64_t least, int64_t &first, int64_t &last);
    Crew *crew_;
    uint32_t shares_ = 0; // how many shares this member has begun in this run: the number of the present one
};

using Job = void (*)(Worker &, void *);

// OpenMP, as another library has loaded it (GOMP_parallel, omp_get_thread_num, omp_get_num_threads): its threads spin for
// a while after their work, so beside them, on the same cores, a team of one's own has half of each.
struct OpenMP {
    void (*parallel)(void (*f)(void *), void *argument, unsigned threads, unsigned flags);
    int (*number)();
    int (*count)();
};

class Team {
  public:
    explicit Team(int members);        // as many as wanted, fewer where no more threads can be had
    Team(int members, OpenMP borrowed); // whose threads do the work
    ~Team();
    void run(Job job, void *argument); // from any thread; two at once take turns. The job must not throw.
    int members() const;
    Team(const Team &) = delete;

  private:
    Crew *crew_;
};

} // namespace plait
