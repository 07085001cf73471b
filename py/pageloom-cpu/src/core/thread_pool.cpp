#include "core/thread_pool.hpp"

#include <chrono>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

namespace pageloom {

namespace {

// Long enough to bridge the gap between the layers of a step, short enough to leave the CPU to others.
constexpr auto kSpin = std::chrono::microseconds(100);

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void pin_to(int cpu) {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
  (void)cpu;
#endif
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
#endif
  if (cpus.empty()) {
    const int count = static_cast<int>(std::thread::hardware_concurrency());
    for (int cpu = 0; cpu < (count > 0 ? count : 1); cpu++) cpus.push_back(cpu);
  }
  return cpus;
}

// Never destroyed: workers may still sleep in it while the process ends.
ThreadPool& ThreadPool::instance() {
  static ThreadPool* pool = new ThreadPool;
  return *pool;
}

ThreadPool::ThreadPool() { resize(0, false); }

void ThreadPool::resize(int count, bool pin) {
  std::lock_guard<std::mutex> owner(owner_);
  stop();
  const std::vector<int> cpus = allowed_cpus();
  if (count == 0) count = static_cast<int>(cpus.size());
  pinned_ = pin;
  for (int worker = 1; worker < count; worker++) {
    const int cpu = pin ? cpus[static_cast<size_t>(worker) % cpus.size()] : -1;
    workers_.emplace_back([this, worker, cpu] {
      if (cpu >= 0) pin_to(cpu);
      work(worker);
    });
  }
  size_ = count;
}

void ThreadPool::stop() {
  {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    stopping_ = true;
    generation_++;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  stopping_ = false;
}

void ThreadPool::drain() {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) task_(context_, i);
}

void ThreadPool::work(int) {
  uint64_t seen = 0;
  for (;;) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    for (int spins = 0; generation_.load() == seen; spins++) {
      pause_briefly();
      if (spins % 64 != 63 || std::chrono::steady_clock::now() < deadline) continue;
      std::unique_lock<std::mutex> lock(sleep_mutex_);
      sleepers_++;
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      sleepers_--;
    }
    seen = generation_.load();
    if (stopping_.load()) return;
    // Joining is announced before `open_` is read, and closing before `joined_` is read: one of the two sees the other.
    joined_++;
    if (open_.load() && seats_.fetch_sub(1) > 0) drain();
    joined_--;
  }
}

void ThreadPool::run(int64_t count, int threads, Task task, void* context) {
  std::unique_lock<std::mutex> owner(owner_, std::defer_lock);
  if (count < 2 || threads < 2 || size() < 2 || !owner.try_lock()) {
    for (int64_t i = 0; i < count; i++) task(context, i);
    return;
  }
  task_ = task;
  context_ = context;
  count_ = count;
  next_ = 0;
  seats_ = threads - 1;
  open_ = true;
  generation_++;
  if (sleepers_.load() > 0) {
    std::lock_guard<std::mutex> lock(sleep_mutex_);
    wake_.notify_all();
  }
  drain();
  open_ = false;
  while (joined_.load() > 0) pause_briefly();
}

}  // namespace pageloom
