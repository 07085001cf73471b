// Query rows of a prefill side by side: a panel's lanes are query rows, so that maxima and sums of the softmax go down
// the panel, and a mask is a comparison of lanes.
#pragma once

struct TileScratch {
  const char** rows;  // [2][kv_block]
  float *queries, *sums, *maxima, *denominators, *begins, *ends, *scores, *keys, *values, *staging, *end;
  int64_t query_width, value_width, panels, lanes;
};

template <int N>
static TileScratch tile_scratch(const AttentionProblem& problem, int64_t rows, int64_t kv_block, float* scratch) {
  TileScratch s;
  s.query_width = padded(problem.head_size);
  s.value_width = padded(problem.v_head_size);
  s.lanes = N * kLanes;
  s.panels = (rows + s.lanes - 1) / s.lanes;
  s.rows = reinterpret_cast<const char**>(scratch);
  s.queries = reinterpret_cast<float*>(s.rows + 2 * kv_block);
  s.sums = s.queries + s.panels * s.query_width * s.lanes;
  s.maxima = s.sums + s.panels * s.value_width * s.lanes;
  s.denominators = s.maxima + s.panels * s.lanes;
  s.begins = s.denominators + s.panels * s.lanes;
  s.ends = s.begins + s.panels * s.lanes;
  s.scores = s.ends + s.panels * s.lanes;
  s.keys = s.scores + kv_block * s.lanes;
  s.values = s.keys + kv_block * s.query_width;
  s.staging = s.values + kv_block * groups_of(s.value_width) * kTileRows;
  s.end = s.staging + kLanes * larger(s.query_width, s.value_width);
  return s;
}

static size_t tile_scratch_size(const AttentionProblem& problem, int64_t rows, int64_t kv_block) {
  const TileScratch s = tile_scratch<2>(problem, rows, kv_block, nullptr);
  return static_cast<size_t>(s.end - reinterpret_cast<float*>(s.rows));
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
      if (r + kLanes < rows) {
        const int64_t soon = task.row_begin + (r + kLanes) / problem.group;
        ask_row<kToRead>(problem.query, task.sequence, soon, head, problem.head_size);
      }
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

// The largest scores of a panel's keys; what weights are relative to, and what was summed up so far must be multiplied
// by.
template <int N>
struct PanelShift {
  Vec top[N], shift[N], rescale[N];
  bool grown;
};

// Hides the scores of keys [begin, begin + count) that a lane does not see, and brings the maxima up to date.
template <int N>
static PanelShift<N> panel_maxima(int64_t panel, int64_t begin, int64_t count, bool masked, const TileScratch& s) {
  const Vec hidden = set(kNegativeInfinity);
  float* maxima = s.maxima + panel * s.lanes;
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
  PanelShift<N> result;
  result.grown = false;
  for (int n = 0; n < N; n++) {
    const Vec before = load(maxima + n * kLanes), after = max(top[n], before);
    result.top[n] = top[n];
    result.grown |= any_less(before, after);
    result.shift[n] = if_less(hidden, after, after, zero());
    result.rescale[n] = exponential(sub(before, result.shift[n]));
    store(maxima + n * kLanes, after);
  }
  return result;
}

// Adds the weights of a block to the denominators and brings what was summed before to the new maxima.
template <int N>
static void rescale_panel(int64_t panel, const PanelShift<N>& shift, const Vec (&total)[N], const TileScratch& s) {
  float* denominators = s.denominators + panel * s.lanes;
  for (int n = 0; n < N; n++) {
    store(denominators + n * kLanes, fma(load(denominators + n * kLanes), shift.rescale[n], total[n]));
  }
  if (!shift.grown) return;
  float* sums = s.sums + panel * s.value_width * s.lanes;
  for (int64_t c = 0; c < s.value_width; c++) {
    for (int n = 0; n < N; n++) {
      float* place = sums + (c * N + n) * kLanes;
      store(place, mul(load(place), shift.rescale[n]));
    }
  }
}

// Brings a panel's scores of keys [begin, begin + count) to weights.
template <int N>
static void panel_softmax(int64_t panel, int64_t begin, int64_t count, bool masked, const TileScratch& s) {
  const PanelShift<N> shift = panel_maxima<N>(panel, begin, count, masked, s);
  Vec total[N];
  for (int n = 0; n < N; n++) total[n] = zero();
  for (int64_t t = 0; t < count; t++) {
    for (int n = 0; n < N; n++) {
      float* place = s.scores + (t * N + n) * kLanes;
      const Vec weight = exponential(sub(load(place), shift.shift[n]));
      store(place, weight);
      total[n] = add(total[n], weight);
    }
  }
  rescale_panel<N>(panel, shift, total, s);
}

template <int N>
static void finish_panels(const AttentionProblem& problem, const AttentionTask& task, int kv_head,
                          const TileScratch& s) {
  const int64_t rows = (task.row_end - task.row_begin) * problem.group, stride = partial_stride(problem);
  auto ask = [&](int64_t begin) {
    for (int64_t r = begin; r < smaller(begin + kLanes, rows); r++) {
      const int head = kv_head * problem.group + static_cast<int>(r % problem.group);
      ask_row<kToWrite>(problem.output, task.sequence, task.row_begin + r / problem.group, head, problem.v_head_size);
    }
  };
  if (!task.partial) ask(0);
  for (int64_t first = 0; first < rows; first += kLanes) {
    if (!task.partial) ask(first + kLanes);
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
