// A weight matrix in panels, in the format of its file.
#pragma once

#include <cstdlib>
#include <memory>

#include "linear/problem.hpp"

namespace pageloom {

class Matrix {
 public:
  // `columns` is a whole number of the format's blocks. All weights are 0.
  Matrix(Format format, int64_t rows, int64_t columns, const LinearKernels& kernels);

  const Panels& panels() const { return panels_; }
  const LinearKernels& kernels() const { return *kernels_; }
  int64_t num_panels() const { return (panels_.rows + kernels_->lanes - 1) / kernels_->lanes; }
  int64_t bytes() const { return num_panels() * panels_.panel_bytes; }
  int64_t source_row_bytes() const;

  // Packs `count` rows of the file, which follow each other, from row `first` on. Returns whether their floats are finite.
  bool load(const char* rows, int64_t first, int64_t count);

 private:
  struct Free {
    void operator()(char* data) const { std::free(data); }
  };

  const LinearKernels* kernels_;
  Panels panels_;
  std::unique_ptr<char[], Free> data_;
};

}  // namespace pageloom
