// Loops shared between the threads of the pool.
#pragma once

#include <cstdint>

#include "core/thread_pool.hpp"

namespace pageloom {

// Calls body(i) for each i in [0, count).
template <class Body>
void parallel_for(int64_t count, const Body& body) {
  ThreadPool& pool = ThreadPool::instance();
  pool.run(
      count, pool.size(), [](void* context, int64_t i) { (*static_cast<const Body*>(context))(i); },
      const_cast<Body*>(&body));
}

// Calls body(begin, end) for parts of [0, count), a few for each thread, of at least `least` each.
template <class Body>
void parallel_ranges(int64_t count, int64_t least, const Body& body) {
  const int64_t parts = 4 * ThreadPool::instance().size();
  int64_t step = (count + parts - 1) / parts;
  if (step < least) step = least;
  parallel_for((count + step - 1) / step, [&](int64_t i) {
    const int64_t begin = i * step;
    body(begin, begin + step < count ? begin + step : count);
  });
}

}  // namespace pageloom
