// The operations of a decoder's layers, bound to their arrays. Each reads how many rows it has anew at every run.
#pragma once

#include <vector>

#include "linear/matrix.hpp"

namespace pageloom {

class Call {
 public:
  virtual ~Call() = default;
  virtual void run() const = 0;
};

// Rows of activations, `stride` floats apart.
struct Values {
  float* data = nullptr;
  int64_t stride = 0, width = 0, rows = 0;
};

// How many rows count in this run: clamped to [0, `most`].
struct RowCount {
  const int32_t* value = nullptr;
  int64_t most = 0;

  int64_t get() const { return *value < 0 ? 0 : *value > most ? most : *value; }
};

struct EmbedCall : Call {
  const Matrix* matrix = nullptr;
  const int32_t* ids = nullptr;  // those outside the matrix give zeros
  Values output;
  RowCount count;
  float scale = 1;
  void run() const override;
};

struct RmsNormCall : Call {
  RmsNormProblem problem;
  const LinearKernels* kernels = nullptr;
  Values input, output, residual;  // without data there is no residual
  RowCount count;
  void run() const override;
};

struct SelectRowsCall : Call {
  Values input, output;
  const int32_t* indices = nullptr;  // those outside `input` give zeros
  RowCount count;
  void run() const override;
};

// One matrix of a product, with the output of its rows.
struct Part {
  const Matrix* matrix = nullptr;
  LinearOutput output;
};

// The rows of several matrices, one after the other.
struct LinearCall : Call {
  std::vector<Part> parts;
  Values input;
  RowCount count;
  void run() const override;
};

struct GatedLinearCall : Call {
  const Matrix* gate = nullptr;
  const Matrix* up = nullptr;
  Activation activation = Activation::silu;
  Values input, output;
  RowCount count;
  void run() const override;
};

// An entry of the logits that is changed before the search: (x > 0 ? x / divisor : x * divisor) + bias.
struct Adjustments {
  const int32_t* rows = nullptr;
  const int32_t* tokens = nullptr;
  const float* divisors = nullptr;
  const float* biases = nullptr;
  RowCount count;
};

// The best tokens of each row of logits, best first and the lower one first where they are equal.
struct CandidatesCall : Call {
  const LinearKernels* kernels = nullptr;
  Values logits;
  Adjustments adjustments;
  RowCount count, candidates;
  int32_t* ids = nullptr;         // [rows][stride]
  float* values = nullptr;        // [rows][stride]
  int64_t stride = 0;
  float* log_sum_exp = nullptr;   // [rows]
  void run() const override;
};

}  // namespace pageloom
