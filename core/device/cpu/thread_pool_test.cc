// What ThreadPool promises beyond "the tasks ran": every task once, worker numbers that may index scratch memory,
// reuse from region to region, and destruction at any time.
#include "core/device/cpu/thread_pool.h"

#include <atomic>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace moe {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t tasks : {0, 1, 2, 5, 100}) {
      std::vector<int> count(tasks, 0);
      pool.ParallelFor(tasks, [&](int64_t task) { ++count[task]; });
      for (int64_t i = 0; i < tasks; ++i) EXPECT_EQ(count[i], 1) << threads << " threads, task " << i;
    }
  }
}

TEST(ThreadPool, WritesOfTasksAreSeenByTheCallerAndByTheNextRegion) {
  ThreadPool pool(4);
  std::vector<int64_t> v(64, 0);
  for (int round = 0; round < 3000; ++round) {
    pool.ParallelFor(8, [&](int64_t task) {
      for (int i = 0; i < 8; ++i) ++v[i * 8 + task];
    });
    ASSERT_EQ(v[round % 64], round + 1);
  }
}

TEST(ThreadPool, OneTaskAtATimePerWorker) {
  ThreadPool pool(5);
  std::vector<std::atomic<int>> busy(5);
  std::atomic<int> clashes{0};
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(40, [&](int64_t, int worker) {
      if (worker < 0 || worker >= 5 || busy[worker].exchange(1) != 0) ++clashes;
      busy[worker].store(0);
    });
  }
  EXPECT_EQ(clashes.load(), 0);
}

// Both workers must be inside the region at once: a pool that ran all tasks on the caller would never end.
TEST(ThreadPool, WorkersRunAtTheSameTime) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  pool.ParallelFor(2, [&](int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

// The caller has nothing left to do and must still wait for the worker that has.
TEST(ThreadPool, ReturnsAfterTheLastTask) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> arrived{0};
    std::atomic<bool> done{false};
    pool.ParallelFor(2, [&](int64_t, int worker) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
      if (worker == 0) return;
      volatile int64_t work = 0;
      for (int64_t i = 0; i < 200000; ++i) work = work + i;
      done.store(true);
    });
    ASSERT_TRUE(done.load()) << "round " << round;
  }
}

TEST(ThreadPool, DiesIdleOrRightAfterARegion) {
  for (int i = 0; i < 200; ++i) {
    auto pool = std::make_unique<ThreadPool>(3);
    std::atomic<int> n{0};
    if (i % 2) pool->ParallelFor(3, [&](int64_t) { ++n; });
    pool.reset();
    EXPECT_EQ(n.load(), i % 2 ? 3 : 0);
  }
}

}  // namespace
}  // namespace moe
