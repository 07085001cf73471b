#include "linear/matrix.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "linear/packing.hpp"
#include "linear/parallel.hpp"

namespace pageloom {

namespace {

constexpr size_t kHugePage = 2 << 20;

// Zeroed, in huge pages where the system has them: weights are read from end to end, and each page costs a look-up.
char* allocate(size_t bytes) {
  bytes = (std::max<size_t>(bytes, 1) + kHugePage - 1) / kHugePage * kHugePage;
  char* data = static_cast<char*>(std::aligned_alloc(kHugePage, bytes));
  if (!data) throw std::bad_alloc();
#ifdef __linux__
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
  std::memset(data, 0, bytes);
  return data;
}

}  // namespace

Matrix::Matrix(Format format, int64_t rows, int64_t columns, const LinearKernels& kernels) : kernels_(&kernels) {
  const BlockSize& size = block_size(format);
  panels_.format = format;
  panels_.rows = rows;
  panels_.columns = columns;
  panels_.panel_bytes = columns / size.columns * size.packed_bytes * kernels.lanes;
  data_.reset(allocate(static_cast<size_t>(bytes())));
  panels_.data = data_.get();
}

int64_t Matrix::source_row_bytes() const {
  const BlockSize& size = block_size(panels_.format);
  return panels_.columns / size.columns * size.source_bytes;
}

bool Matrix::load(const char* rows, int64_t first, int64_t count) {
  const int lanes = kernels_->lanes;
  const int64_t first_panel = first / lanes, end = first + count;
  std::atomic<bool> finite{true};
  parallel_for((end + lanes - 1) / lanes - first_panel, [&](int64_t index) {
    const int64_t panel = first_panel + index;
    for (int64_t row = std::max(first, panel * lanes); row < std::min(end, (panel + 1) * lanes); row++) {
      if (!pack_row(panels_.format, rows + (row - first) * source_row_bytes(), panels_.columns, lanes,
                    static_cast<int>(row % lanes), data_.get() + panel * panels_.panel_bytes)) {
        finite = false;
      }
    }
  });
  return finite;
}

}  // namespace pageloom
