// Runs the kernels of the level PAGELOOM_LEVEL against the scalar ones on the same data: every kernel and storage, head
// sizes even and not.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "core/problem.hpp"

namespace pageloom {
namespace scalar {
extern const LevelKernels kernels;
}
namespace PAGELOOM_LEVEL {
extern const LevelKernels kernels;
}
}  // namespace pageloom

using namespace pageloom;

namespace {

#ifdef __aarch64__
using Half = __fp16;
#else
using Half = _Float16;
#endif

constexpr int kHeads = 6, kKvHeads = 2, kKeys = 83, kRows = 21;

int width_of(Element element, int channels) {
  switch (element) {
    case Element::f32:
      return 4 * channels;
    case Element::f16:
      return 2 * channels;
    case Element::i8:
      return channels;
    default:
      return (channels + 1) / 2;
  }
}

Cache cache_over(std::vector<char>& data, Element element, int channels, const float* scale) {
  const int width = width_of(element, channels);
  Cache cache;
  cache.data = data.data();
  cache.element = element;
  cache.row_stride = width;
  cache.head_stride = static_cast<int64_t>(kKeys) * width;
  cache.block_stride = kKvHeads * cache.head_stride;
  cache.scale = element == Element::i8 || element == Element::i4 ? scale : nullptr;
  return cache;
}

std::vector<char> random_rows(Element element, int channels, std::mt19937& random, const LevelKernels& kernels) {
  const int width = width_of(element, channels);
  std::vector<char> data(static_cast<size_t>(kKvHeads) * kKeys * width);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> row(static_cast<size_t>(channels));
  const float scale = element == Element::i4 ? 1 / 7.0f : 1 / 127.0f;
  for (size_t i = 0; i < static_cast<size_t>(kKvHeads) * kKeys; i++) {
    for (float& x : row) x = uniform(random);
    char* out = data.data() + i * static_cast<size_t>(width);
    if (element == Element::f32) {
      __builtin_memcpy(out, row.data(), static_cast<size_t>(width));
    } else if (element == Element::f16) {
      for (int c = 0; c < channels; c++) {
        const Half half = row[static_cast<size_t>(c)];
        __builtin_memcpy(out + 2 * c, &half, 2);
      }
    } else {
      kernels.quantize_row(row.data(), &scale, false, false, element, channels, out);
    }
  }
  return data;
}

enum class Kind { rows, tile, naive };

std::vector<float> attend(const LevelKernels& kernels, AttentionProblem problem, Kind kind) {
  std::vector<float> output(static_cast<size_t>(kRows) * kHeads * problem.v_head_size);
  const int row_bytes = 4 * problem.v_head_size;
  problem.output = {reinterpret_cast<char*>(output.data()), Element::f32, 0, kHeads * row_bytes, row_bytes};
  AttentionTask task;
  task.sequence = {0, 0, kRows, kKeys - kRows, kKeys};
  task.row_end = kRows;
  task.head_end = kKvHeads;
  task.end = kKeys;
  constexpr int64_t kBlock = 32;
  size_t floats = kernels.rows_scratch(problem, kBlock);
  if (kind == Kind::tile) floats = kernels.tile_scratch(problem, kRows * problem.group, kBlock);
  if (kind == Kind::naive) floats = kernels.naive_scratch(problem, kKeys);
  std::vector<float> memory(floats + 64);
  float* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) / sizeof(float);
  if (kind == Kind::rows) kernels.attend_rows(problem, task, {kBlock, kBlock}, scratch);
  if (kind == Kind::tile) kernels.attend_tile(problem, task, kBlock, scratch);
  if (kind == Kind::naive) kernels.attend_naive(problem, task, scratch);
  return output;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  int failures = 0;
  for (Element element : {Element::f32, Element::f16, Element::i8, Element::i4}) {
    for (int channels : {64, 19, 128}) {
      const float scale = element == Element::i4 ? 1 / 7.0f : 1 / 127.0f;
      std::mt19937 same = random;
      std::vector<char> keys = random_rows(element, channels, random, PAGELOOM_LEVEL::kernels);
      std::vector<char> values = random_rows(element, channels, random, PAGELOOM_LEVEL::kernels);
      if (keys != random_rows(element, channels, same, scalar::kernels)) {
        failures++;
        std::printf("codes differ\n");
      }
      std::vector<float> query(static_cast<size_t>(kRows) * kHeads * channels);
      for (float& x : query) x = normal(random);
      AttentionProblem problem;
      problem.query = {reinterpret_cast<char*>(query.data()), Element::f32, 0, 4 * kHeads * channels, 4 * channels};
      problem.key = cache_over(keys, element, channels, &scale);
      problem.value = cache_over(values, element, channels, &scale);
      problem.addressing = {nullptr, 0, 0, 1, 1, kKeys};
      problem.heads = kHeads;
      problem.kv_heads = kKvHeads;
      problem.group = kHeads / kKvHeads;
      problem.head_size = problem.v_head_size = channels;
      problem.scale = 0.3f;
      problem.softcap = 8;
      for (Kind kind : {Kind::rows, Kind::tile, Kind::naive}) {
        const std::vector<float> a = attend(scalar::kernels, problem, Kind::naive);
        const std::vector<float> b = attend(PAGELOOM_LEVEL::kernels, problem, kind);
        float worst = 0;
        for (size_t i = 0; i < a.size(); i++) worst = std::fmax(worst, std::fabs(a[i] - b[i]));
        if (!(worst < 5e-6f)) {
          failures++;
          std::printf("element %d channels %d kernel %d: off by %g\n", static_cast<int>(element), channels,
                      static_cast<int>(kind), static_cast<double>(worst));
        }
      }
    }
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
