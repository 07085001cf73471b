// Plain descriptions of one call, shared by all levels. No function here may have external linkage: the same inline
// function compiled for two instruction sets would be merged by the linker into either of them.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace pageloom {

enum class Element : uint8_t { f32, f16, i8, i4, boolean };
enum class QkStage : uint8_t { scaled, softcapped, masked, probabilities };

// Rows [batch, rows, heads, channels], or [tokens, heads, channels] with sequence_stride 0. Strides in bytes; the
// channels of a head lie together.
struct Rows {
  char* data = nullptr;
  Element element = Element::f32;
  int64_t sequence_stride = 0, row_stride = 0, head_stride = 0;
};

// K or V. Position p of sequence b is row p % block_size of block table[b, p / block_size]; a contiguous cache is one
// block for each sequence. Strides in bytes. `scale` has 1 element, or `per_channel` one for each channel of each head.
struct Cache {
  char* data = nullptr;
  Element element = Element::f32;
  int64_t block_stride = 0, row_stride = 0, head_stride = 0;
  const float* scale = nullptr;
  bool per_channel = false;
};

// Where the blocks of a sequence are. Without `table`, block b is sequence b's own.
struct Addressing {
  const int32_t* table = nullptr;
  int64_t sequence_stride = 0, column_stride = 0;  // elements of `table`
  int64_t columns = 1, num_blocks = 0, block_size = 0;
};

// Additive float or boolean, strides in bytes, 0 where it is broadcast.
struct Bias {
  const char* data = nullptr;
  Element element = Element::f32;
  int64_t sequence_stride = 0, head_stride = 0, row_stride = 0, column_stride = 0;
  int64_t columns = 0;
};

// One sequence of a call: row i of `count` is row `query_row + i` of the query and stands at position first + i; keys
// [0, total) exist.
struct Sequence {
  int64_t index = 0, query_row = 0, count = 0, first = 0, total = 0;
};

struct LogSumExp {
  float* data = nullptr;
  int64_t sequence_stride = 0, row_stride = 0, head_stride = 0;  // elements
};

struct QkOutput {
  char* data = nullptr;
  Element element = Element::f32;
  QkStage stage = QkStage::probabilities;
  float hidden = 0;
  int64_t sequence_stride = 0, head_stride = 0, row_stride = 0;  // bytes
  int64_t columns = 0;
};

struct AttentionProblem {
  Rows query, output;
  Cache key, value;
  Addressing addressing;
  int heads = 0, kv_heads = 0, group = 0, head_size = 0, v_head_size = 0;
  float scale = 1, softcap = 0;
  bool causal = true;
  int64_t window = 0;           // 0 is off
  const char* sinks = nullptr;  // [heads]
  Element sink_element = Element::f32;
  Bias bias;
  LogSumExp log_sum_exp;
  QkOutput qk;
  bool two_limbs = false;   // Q and weights as whole numbers of 16 bits in tiles, not of 24
  bool int8_query = false;  // q.k of int8 rows with Q rounded to 8 bits
};

// Rows [row_begin, row_end) of one sequence, K/V heads [head_begin, head_end), keys [begin, end). With `partial`, the
// running maximum, sum and unnormalised output of each (row, query head) are left there instead of the output.
struct AttentionTask {
  Sequence sequence;
  int64_t row_begin = 0, row_end = 0;
  int head_begin = 0, head_end = 0;
  int64_t begin = 0, end = 0;
  float* partial = nullptr;
};

// How a single row goes over its keys: `block` of them share a step of the softmax, `piece` of those are read for one
// head before they are read for the next, and meanwhile memory may be asked for the piece after.
struct RowBlocks {
  int64_t block = 0, piece = 0;
  bool ask_ahead = true;
};

// The partial results of one (row, query head): maximum, sum, then `partial_stride - 2` unnormalised channels.
struct MergeTask {
  Sequence sequence;
  int64_t row = 0;
  const float* partials = nullptr;  // [splits][heads][partial_stride]
  int splits = 0;
  int64_t split_stride = 0;  // floats
};

// What happens to new rows before attention.
struct AppendProblem {
  Rows query, query_output, key, value;
  Cache key_cache, value_cache;
  Addressing addressing;
  int heads = 0, kv_heads = 0, head_size = 0, v_head_size = 0;
  const char* slots = nullptr;  // int32 or int64 per token, or nullptr
  bool wide_slots = false;
  int64_t slot_stride = 0;
  const char* cos = nullptr;
  const char* sin = nullptr;
  Element rotary_element = Element::f32;
  int64_t cos_stride = 0, sin_stride = 0, rotary_rows = 0;
  int half = 0, rotary_offset = 0;
  bool interleaved = false;
  const char* position_ids = nullptr;
  bool wide_positions = false, counts_up = false;
  int64_t position_sequence_stride = 0, position_row_stride = 0;  // bytes
  const char* q_norm_weight = nullptr;
  const char* k_norm_weight = nullptr;
  Element norm_element = Element::f32;
  float q_norm_epsilon = 1e-6f, k_norm_epsilon = 1e-6f;
  bool divide = false;
};

// The kernels of one instruction-set level.
struct LevelKernels {
  int lanes;
  int tile_rows;           // rows of a tile are worked on in multiples of this
  int64_t most_tile_rows;  // more do not pay
  int64_t most_tile_keys;  // of a block; likewise
  int least_rounded;       // channels of a Q that `int8_query` may round; 0 where it may not
  int64_t (*partial_stride)(const AttentionProblem&);
  size_t (*rows_scratch)(const AttentionProblem&, int64_t kv_block);
  size_t (*tile_scratch)(const AttentionProblem&, int64_t row_tile, int64_t kv_block);
  void (*attend_rows)(const AttentionProblem&, const AttentionTask&, const RowBlocks& blocks, float* scratch);
  void (*attend_naive)(const AttentionProblem&, const AttentionTask&, float* scratch);
  size_t (*naive_scratch)(const AttentionProblem&, int64_t keys);
  void (*attend_tile)(const AttentionProblem&, const AttentionTask&, int64_t kv_block, float* scratch);
  void (*merge)(const AttentionProblem&, const MergeTask&, float* scratch);
  void (*append_row)(const AppendProblem&, const Sequence&, int64_t row, float* scratch);
  size_t (*append_scratch)(const AppendProblem&);
  void (*quantize_row)(const float* values, const float* scale, bool per_channel, bool divide, Element element,
                       int count, char* codes);
};

}  // namespace pageloom
