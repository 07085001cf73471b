// New Q, K and V rows: RMSNorm, rotary embedding, then into the cache or the query buffer.
#pragma once

static size_t append_scratch_size(const AppendProblem& problem) {
  const int widest = problem.head_size > problem.v_head_size ? problem.head_size : problem.v_head_size;
  return 2 * padded(widest) + 2 * padded(problem.half ? problem.half : 1);
}

PAGELOOM_INLINE int64_t read_index(const char* p, bool wide) {
  if (wide) {
    int64_t value;
    memcpy(&value, p, sizeof value);
    return value;
  }
  int32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

static void rms_norm(float* x, int channels, const char* weight, Element element, float epsilon, float* gains) {
  Vec squares = zero();
  for (int c = 0; c < channels; c += kLanes) {
    const Vec value = load_first(x + c, static_cast<int>(smaller(kLanes, channels - c)));
    squares = fma(value, value, squares);
  }
  const float factor = 1 / sqrtf(sum(squares) / static_cast<float>(channels) + epsilon);
  load_floats(weight, element, channels, gains);
  for (int c = 0; c < channels; c++) x[c] = x[c] * factor * gains[c];
}

static void rotate(const AppendProblem& problem, const float* cos, const float* sin, float* x) {
  float* base = x + problem.rotary_offset;
  const int step = problem.interleaved ? 2 : 1, partner = problem.interleaved ? 1 : problem.half;
  for (int i = 0; i < problem.half; i++) {
    float &low = base[i * step], &high = base[i * step + partner];
    const float turned = low * cos[i] - high * sin[i];
    high = high * cos[i] + low * sin[i];
    low = turned;
  }
}

// The cos and sin rows of one token.
static void load_turn(const AppendProblem& problem, const Sequence& sequence, int64_t row, float* cos, float* sin) {
  int64_t position = sequence.first + row;
  if (problem.position_ids) {
    const char* ids = problem.position_ids;
    position =
        problem.counts_up
            ? read_index(ids, problem.wide_positions) + row
            : read_index(ids + sequence.index * problem.position_sequence_stride + row * problem.position_row_stride,
                         problem.wide_positions);
  }
  position = larger(0, smaller(position, problem.rotary_rows - 1));
  load_floats(problem.cos + position * problem.cos_stride, problem.rotary_element, problem.half, cos);
  load_floats(problem.sin + position * problem.sin_stride, problem.rotary_element, problem.half, sin);
}

// Where K and V of one token go: the row of head 0, or nullptr for nowhere.
static char* cache_row(const AppendProblem& problem, const Cache& cache, const Sequence& sequence, int64_t row) {
  const Addressing& where = problem.addressing;
  if (problem.slots) {
    const int64_t slot =
        read_index(problem.slots + (sequence.query_row + row) * problem.slot_stride, problem.wide_slots);
    if (slot < 0 || slot >= where.num_blocks * where.block_size) return nullptr;
    return cache.data + slot / where.block_size * cache.block_stride + slot % where.block_size * cache.row_stride;
  }
  const int64_t position = sequence.first + row;
  if (position < 0 || position >= sequence.total) return nullptr;
  const Run run = run_at(cache, where, sequence.index, 0, position, position + 1);
  return const_cast<char*>(run.data);
}

static void store_row(const Cache& cache, char* out, const float* values, int channels, int kv_head, bool divide) {
  if (cache.element == Element::f32 || cache.element == Element::f16) {
    store_floats(out, cache.element, channels, values);
  } else {
    const float* scale = cache.scale + (cache.per_channel ? static_cast<int64_t>(kv_head) * channels : 0);
    quantize_row(values, scale, cache.per_channel, divide, cache.element, channels, out);
  }
}

static void append_row(const AppendProblem& problem, const Sequence& sequence, int64_t row, float* scratch) {
  const int channels = problem.head_size;
  const int widest = channels > problem.v_head_size ? channels : problem.v_head_size;
  float* x = scratch;
  float* gains = x + padded(widest);
  float* cos = gains + padded(widest);
  float* sin = cos + padded(problem.half ? problem.half : 1);
  if (problem.cos) load_turn(problem, sequence, row, cos, sin);
  if (problem.query.data) {
    for (int head = 0; head < problem.heads; head++) {
      load_floats(row_of(problem.query, sequence, row, head), problem.query.element, channels, x);
      if (problem.q_norm_weight) {
        rms_norm(x, channels, problem.q_norm_weight, problem.norm_element, problem.q_norm_epsilon, gains);
      }
      if (problem.cos) rotate(problem, cos, sin, x);
      store_floats(row_of(problem.query_output, sequence, row, head), problem.query_output.element, channels, x);
    }
  }
  if (problem.key.data) {
    if (char* out = cache_row(problem, problem.key_cache, sequence, row)) {
      for (int head = 0; head < problem.kv_heads; head++, out += problem.key_cache.head_stride) {
        load_floats(row_of(problem.key, sequence, row, head), problem.key.element, channels, x);
        if (problem.k_norm_weight) {
          rms_norm(x, channels, problem.k_norm_weight, problem.norm_element, problem.k_norm_epsilon, gains);
        }
        if (problem.cos) rotate(problem, cos, sin, x);
        store_row(problem.key_cache, out, x, channels, head, problem.divide);
      }
    }
  }
  if (problem.value.data) {
    if (char* out = cache_row(problem, problem.value_cache, sequence, row)) {
      for (int head = 0; head < problem.kv_heads; head++, out += problem.value_cache.head_stride) {
        load_floats(row_of(problem.value, sequence, row, head), problem.value.element, problem.v_head_size, x);
        store_row(problem.value_cache, out, x, problem.v_head_size, head, problem.divide);
      }
    }
  }
}
