// The library's one pool of threads. A call shares its tasks with the workers where the pool is free, and does them
// itself where another call has it: many callers at once never make more threads than were asked for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace pageloom {

class ThreadPool {
 public:
  using Task = void (*)(void* context, int64_t index);

  static ThreadPool& instance();

  // Threads that share a call, the caller included.
  int size() const { return size_.load(std::memory_order_relaxed); }
  bool pinned() const { return pinned_; }
  void resize(int count, bool pin);

  // Calls task(context, i) for each i in [0, count), in any order, on at most `threads` threads, and returns when all
  // are done.
  void run(int64_t count, int threads, Task task, void* context);

 private:
  ThreadPool();
  void work(int worker);
  void drain();
  void stop();

  std::mutex owner_;  // held by the call that shares its tasks
  std::vector<std::thread> workers_;
  std::atomic<int> size_{1};
  bool pinned_ = false;

  Task task_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> open_{false}, stopping_{false};
  std::atomic<int> joined_{0}, sleepers_{0}, seats_{0};
  std::atomic<uint64_t> generation_{0};
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
};

// CPUs that this process may run on.
std::vector<int> allowed_cpus();

}  // namespace pageloom
