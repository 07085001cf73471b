// Working memory of a thread: grows to the largest use and is kept, so that a repeated call allocates nothing.
#pragma once

#include <cstdlib>
#include <new>

namespace pageloom {

class Scratch {
 public:
  ~Scratch() { std::free(data_); }

  // At least `count` floats, aligned to a cache line; what was in it before is lost.
  float* floats(size_t count) {
    if (count > size_) {
      std::free(data_);
      size_ = 0;
      data_ = static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
      if (!data_) throw std::bad_alloc();
      size_ = count;
    }
    return data_;
  }

 private:
  float* data_ = nullptr;
  size_t size_ = 0;
};

inline Scratch& task_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

// For what lives across the tasks of a call.
inline Scratch& call_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

}  // namespace pageloom
