// Attention of many query rows at once (prefill). A panel's lanes are query rows: scores are K Q^T and the output is
// V^T P^T, so that K and V are read along their rows, maxima and sums of the softmax go down the panel, and a mask is a
// comparison of lanes. A block of K and V is converted once for all panels of a task.
#pragma once

struct TileScratch {
  float *queries, *sums, *maxima, *denominators, *begins, *ends, *scores, *keys, *values, *staging;
  int64_t query_width, value_width, panels, lanes;
};

template <int N>
static TileScratch tile_scratch(const AttentionProblem& problem, int64_t rows, int64_t kv_block, float* scratch) {
  TileScratch s;
  s.query_width = padded(problem.head_size);
  s.value_width = padded(problem.v_head_size);
  s.lanes = N * kLanes;
  s.panels = (rows + s.lanes - 1) / s.lanes;
  s.queries = scratch;
  s.sums = s.queries + s.panels * s.query_width * s.lanes;
  s.maxima = s.sums + s.panels * s.value_width * s.lanes;
  s.denominators = s.maxima + s.panels * s.lanes;
  s.begins = s.denominators + s.panels * s.lanes;
  s.ends = s.begins + s.panels * s.lanes;
  s.scores = s.ends + s.panels * s.lanes;
  s.keys = s.scores + kv_block * s.lanes;
  s.values = s.keys + kv_block * s.query_width;
  s.staging = s.values + kv_block * s.value_width;
  return s;
}

static size_t tile_scratch_size(const AttentionProblem& problem, int64_t rows, int64_t kv_block) {
  const TileScratch s = tile_scratch<2>(problem, rows, kv_block, nullptr);
  return static_cast<size_t>(s.staging - s.queries) + kLanes * larger(s.query_width, s.value_width);
}

// Q of the task's rows into panels, and the keys each lane sees. Lanes without a row repeat the last one's keys.
template <int N>
static void load_panels(const AttentionProblem& problem, const AttentionTask& task, int kv_head, const TileScratch& s) {
  const int64_t rows = (task.row_end - task.row_begin) * problem.group;
  for (int64_t first = 0; first < s.panels * s.lanes; first += kLanes) {
    const int64_t panel = first / s.lanes, offset = first % s.lanes;
    for (int64_t lane = 0; lane < kLanes; lane++) {
      const int64_t r = smaller(first + lane, rows - 1), row = task.row_begin + r / problem.group;
      const int head = kv_head * problem.group + static_cast<int>(r % problem.group);
      prepare_query(problem, task.sequence, row, head, s.staging + lane * s.query_width);
      const Span span = visible_keys(problem, task.sequence, task.sequence.first + row);
      s.begins[first + lane] = static_cast<float>(larger(span.begin, task.begin));
      s.ends[first + lane] = static_cast<float>(smaller(span.end, task.end));
      s.maxima[first + lane] = kNegativeInfinity;
      s.denominators[first + lane] = 0;
    }
    float* out = s.queries + panel * s.query_width * s.lanes + offset;
    for (int64_t c = 0; c < s.query_width; c += kLanes) {
      Vec block[kLanes];
      for (int i = 0; i < kLanes; i++) block[i] = load(s.staging + i * s.query_width + c);
      transpose(block);
      for (int i = 0; i < kLanes; i++) store(out + (c + i) * s.lanes, block[i]);
    }
  }
  const int64_t floats = s.panels * s.value_width * s.lanes;
  for (int64_t i = 0; i < floats; i += kLanes) store(s.sums + i, zero());
}

// Softcap and bias of a panel's scores [count][lanes], whose first key is `begin`.
static void transform_panel(const AttentionProblem& problem, const AttentionTask& task, int kv_head, int64_t panel,
                            int64_t begin, int64_t count, const TileScratch& s) {
  if (problem.softcap > 0) soft_cap_all(problem.softcap, s.scores, count * s.lanes);
  if (problem.bias.data) {
    constexpr int kPiece = 64;
    float bias[kPiece];
    const int64_t rows = (task.row_end - task.row_begin) * problem.group;
    for (int64_t lane = 0; lane < s.lanes; lane++) {
      const int64_t r = smaller(panel * s.lanes + lane, rows - 1);
      const int64_t head = kv_head * problem.group + r % problem.group;
      for (int64_t first = 0; first < count; first += kPiece) {
        const int64_t piece = smaller(kPiece, count - first);
        load_bias(problem.bias, task.sequence.index, head, task.row_begin + r / problem.group, begin + first, piece,
                  bias);
        for (int64_t i = 0; i < piece; i++) {
          float& score = s.scores[(first + i) * s.lanes + lane];
          score = bias[i] == kNegativeInfinity ? kNegativeInfinity : score + bias[i];
        }
      }
    }
  }
}

static void hide_unmapped(const AttentionProblem& problem, const AttentionTask& task, int kv_head, int64_t begin,
                          int64_t count, const TileScratch& s) {
  for (int64_t t = begin; t < begin + count;) {
    const Run run = run_at(problem.key, problem.addressing, task.sequence.index, kv_head, t, begin + count);
    if (!run.data) {
      for (int64_t i = 0; i < run.count * s.lanes; i++) s.scores[(t - begin) * s.lanes + i] = kNegativeInfinity;
    }
    t += run.count;
  }
}

// Brings a panel's scores of keys [begin, begin + count) to weights relative to the running maxima, and rescales what
// was summed so far.
template <int N>
static void panel_softmax(int64_t panel, int64_t begin, int64_t count, bool masked, const TileScratch& s) {
  const Vec hidden = set(kNegativeInfinity);
  float* maxima = s.maxima + panel * s.lanes;
  float* denominators = s.denominators + panel * s.lanes;
  Vec top[N];
  for (int n = 0; n < N; n++) top[n] = hidden;
  if (masked) {
    Vec first[N], last[N];
    for (int n = 0; n < N; n++) {
      first[n] = load(s.begins + panel * s.lanes + n * kLanes);
      last[n] = load(s.ends + panel * s.lanes + n * kLanes);
    }
    for (int64_t t = 0; t < count; t++) {
      const Vec key = set(static_cast<float>(begin + t));
      for (int n = 0; n < N; n++) {
        float* place = s.scores + (t * N + n) * kLanes;
        const Vec score = if_less(key, first[n], hidden, if_less(key, last[n], load(place), hidden));
        store(place, score);
        top[n] = max(score, top[n]);
      }
    }
  } else {
    for (int64_t t = 0; t < count; t++) {
      for (int n = 0; n < N; n++) top[n] = max(load(s.scores + (t * N + n) * kLanes), top[n]);
    }
  }
  Vec shift[N], rescale[N], total[N];
  bool grown = false;
  for (int n = 0; n < N; n++) {
    const Vec before = load(maxima + n * kLanes), after = max(top[n], before);
    grown |= any_less(before, after);
    shift[n] = if_less(hidden, after, after, zero());
    rescale[n] = exponential(sub(before, shift[n]));
    total[n] = zero();
    store(maxima + n * kLanes, after);
  }
  for (int64_t t = 0; t < count; t++) {
    for (int n = 0; n < N; n++) {
      float* place = s.scores + (t * N + n) * kLanes;
      const Vec weight = exponential(sub(load(place), shift[n]));
      store(place, weight);
      total[n] = add(total[n], weight);
    }
  }
  for (int n = 0; n < N; n++) {
    store(denominators + n * kLanes, fma(load(denominators + n * kLanes), rescale[n], total[n]));
  }
  if (!grown) return;
  float* sums = s.sums + panel * s.value_width * s.lanes;
  for (int64_t c = 0; c < s.value_width; c++) {
    for (int n = 0; n < N; n++) {
      float* place = sums + (c * N + n) * kLanes;
      store(place, mul(load(place), rescale[n]));
    }
  }
}

static bool seen_by_some(const float* weights, int64_t lanes) {
  float total = 0;
  for (int64_t lane = 0; lane < lanes; lane++) total += weights[lane];
  return total > 0;
}

// Adds weights x V of keys [0, count) of the block. Where keys may be hidden from all rows, those are left out: they
// may hold NaN.
template <int N>
static void add_values(const FloatRows& values, int64_t count, bool any_hidden, const float* weights, float* sums) {
  constexpr int64_t kWidth = N * kLanes;
  for (int64_t t = 0; t < count;) {
    int64_t next = count;
    if (any_hidden) {
      for (; t < count && !seen_by_some(weights + t * kWidth, kWidth); t++) {
      }
      for (next = t; next < count && seen_by_some(weights + next * kWidth, kWidth); next++) {
      }
    }
    multiply<kTileRows, N, true, true>(values.width, next - t, values.data + t * values.stride, values.stride,
                                       weights + t * kWidth, sums);
    t = next;
  }
}

template <int N>
static void finish_panels(const AttentionProblem& problem, const AttentionTask& task, int kv_head,
                          const TileScratch& s) {
  const int64_t rows = (task.row_end - task.row_begin) * problem.group, stride = partial_stride(problem);
  for (int64_t first = 0; first < rows; first += kLanes) {
    const float* sums = s.sums + first / s.lanes * s.value_width * s.lanes + first % s.lanes;
    for (int64_t c = 0; c < s.value_width; c += kLanes) {
      Vec block[kLanes];
      for (int i = 0; i < kLanes; i++) block[i] = load(sums + (c + i) * s.lanes);
      transpose(block);
      for (int i = 0; i < kLanes; i++) store(s.staging + i * s.value_width + c, block[i]);
    }
    for (int64_t r = first; r < smaller(first + kLanes, rows); r++) {
      const int head = kv_head * problem.group + static_cast<int>(r % problem.group);
      float* row_sums = s.staging + (r - first) * s.value_width;
      if (task.partial) {
        float* partial = task.partial + (r / problem.group * problem.heads + head) * stride;
        partial[0] = s.maxima[r];
        partial[1] = s.denominators[r];
        memcpy(partial + 2, row_sums, s.value_width * sizeof(float));
      } else {
        finish_row(problem, task.sequence, task.row_begin + r / problem.group, head, s.maxima[r], s.denominators[r],
                   row_sums);
      }
    }
  }
}

PAGELOOM_INLINE float earliest(const float* values, int64_t count) {
  float result = values[0];
  for (int64_t i = 1; i < count; i++) result = values[i] < result ? values[i] : result;
  return result;
}

PAGELOOM_INLINE float latest(const float* values, int64_t count) {
  float result = values[0];
  for (int64_t i = 1; i < count; i++) result = values[i] > result ? values[i] : result;
  return result;
}

template <int N>
static void attend_tile_head(const AttentionProblem& problem, const AttentionTask& task, int kv_head, int64_t kv_block,
                             float* scratch) {
  const int64_t rows = (task.row_end - task.row_begin) * problem.group;
  const TileScratch s = tile_scratch<N>(problem, rows, kv_block, scratch);
  load_panels<N>(problem, task, kv_head, s);
  const int64_t lanes = s.panels * s.lanes;
  const int64_t first = static_cast<int64_t>(earliest(s.begins, lanes)),
                last = static_cast<int64_t>(latest(s.ends, lanes));
  for (int64_t block = first; block < last; block += kv_block) {
    const int64_t block_end = smaller(block + kv_block, last);
    const FloatRows keys = float_rows(problem.key, problem.addressing, task.sequence.index, kv_head, block, block_end,
                                      problem.head_size, s.keys);
    const FloatRows values = float_rows(problem.value, problem.addressing, task.sequence.index, kv_head, block,
                                        block_end, problem.v_head_size, s.values);
    for (int64_t panel = 0; panel < s.panels; panel++) {
      const float *begins = s.begins + panel * s.lanes, *ends = s.ends + panel * s.lanes;
      const int64_t begin = larger(block, static_cast<int64_t>(earliest(begins, s.lanes)));
      const int64_t end = smaller(block_end, static_cast<int64_t>(latest(ends, s.lanes)));
      if (begin >= end) continue;
      const int64_t count = end - begin, skipped = begin - block;
      multiply<kTileRows, N, false, false>(count, keys.width, keys.data + skipped * keys.stride, keys.stride,
                                           s.queries + panel * s.query_width * s.lanes, s.scores);
      if (transforms_logits(problem)) transform_panel(problem, task, kv_head, panel, begin, count, s);
      if (!keys.mapped) hide_unmapped(problem, task, kv_head, begin, count, s);
      const bool masked =
          static_cast<float>(begin) < latest(begins, s.lanes) || static_cast<float>(end) > earliest(ends, s.lanes);
      panel_softmax<N>(panel, begin, count, masked, s);
      const FloatRows seen = {values.data + skipped * values.stride, values.stride, values.width, values.mapped};
      add_values<N>(seen, count, problem.bias.data || !keys.mapped, s.scores, s.sums + panel * s.value_width * s.lanes);
    }
  }
  finish_panels<N>(problem, task, kv_head, s);
}

static void attend_tile(const AttentionProblem& problem, const AttentionTask& task, int64_t kv_block, float* scratch) {
  const int64_t rows = (task.row_end - task.row_begin) * problem.group;
  for (int kv_head = task.head_begin; kv_head < task.head_end; kv_head++) {
    if (rows <= kLanes) {
      attend_tile_head<1>(problem, task, kv_head, kv_block, scratch);
    } else {
      attend_tile_head<2>(problem, task, kv_head, kv_block, scratch);
    }
  }
}
