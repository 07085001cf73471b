// Attention of single query rows (decode): K and V are read in place, each row once for all heads of its group, with an
// online softmax over blocks of keys.
#pragma once

// q and sums of all heads, then maxima and denominators, the scores of a block and the addresses of the rows of two.
struct RowsScratch {
  float *queries, *sums, *maxima, *denominators, *scores;
  const char** addresses;
  int64_t query_width, value_width, score_stride;
};

static RowsScratch rows_scratch(const AttentionProblem& problem, int64_t kv_block, float* scratch) {
  RowsScratch s;
  s.query_width = padded(problem.head_size);
  s.value_width = padded(problem.v_head_size);
  s.score_stride = (kv_block + 15) / 16 * 16;
  s.addresses = reinterpret_cast<const char**>(scratch);
  s.scores = reinterpret_cast<float*>(s.addresses + 4 * s.score_stride);
  s.queries = s.scores + kMaxGroup * s.score_stride;
  s.sums = s.queries + problem.heads * s.query_width;
  s.maxima = s.sums + problem.heads * s.value_width;
  s.denominators = s.maxima + problem.heads;
  return s;
}

static size_t rows_scratch_size(const AttentionProblem& problem, int64_t kv_block) {
  const int64_t addresses = 4 * (sizeof(char*) / sizeof(float)), stride = (kv_block + 15) / 16 * 16;
  return static_cast<size_t>((addresses + kMaxGroup) * stride +
                             problem.heads * (padded(problem.head_size) + padded(problem.v_head_size) + 2));
}

// Brings `logits` of one head to weights relative to its running maximum. Returns whether any key is visible.
static bool online_softmax(float* logits, int64_t count, float& maximum, float& denominator, float* sums,
                           int64_t width) {
  Vec top = set(kNegativeInfinity);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) top = max(top, load(logits + i));
  float block_maximum = largest(top);
  for (int64_t j = i; j < count; j++) block_maximum = logits[j] > block_maximum ? logits[j] : block_maximum;
  if (block_maximum > maximum) {
    const float rescale = expf(maximum - block_maximum);
    maximum = block_maximum;
    denominator *= rescale;
    for (int64_t c = 0; c < width; c += kLanes) store(sums + c, mul(load(sums + c), set(rescale)));
  }
  if (block_maximum == kNegativeInfinity) {
    for (int64_t j = 0; j < count; j++) logits[j] = 0;
    return false;
  }
  const Vec shift = set(maximum);
  Vec total = zero();
  for (i = 0; i + kLanes <= count; i += kLanes) {
    const Vec weight = exponential(sub(load(logits + i), shift));
    store(logits + i, weight);
    total = add(total, weight);
  }
  denominator += sum(total);
  if (i < count) {
    const int n = static_cast<int>(count - i);
    store_first(logits + i, exponential(sub(load_first(logits + i, n), shift)), n);
    for (; i < count; i++) denominator += logits[i];
  }
  return true;
}

// Keys [begin, end) and their rows of K/V head `head`, which are nullptr where the table maps none.
struct KeyBlock {
  int head;
  int64_t begin, end;
  const char **keys, **values;
  bool mapped;
  int64_t count() const { return end - begin; }
};

static KeyBlock list_block(const AttentionProblem& problem, const Sequence& sequence, int head, int64_t begin,
                           int64_t end, const char** keys, const char** values) {
  const bool mapped = list_rows(problem.key, problem.addressing, sequence.index, head, begin, end, keys);
  list_rows(problem.value, problem.addressing, sequence.index, head, begin, end, values);
  return {head, begin, end, keys, values, mapped};
}

// Heads that lie beside each other in a token are visited together, so that a token is read as one piece.
PAGELOOM_INLINE bool heads_inside(const Cache& cache) { return cache.head_stride < cache.row_stride; }

// What to ask for of block `next`, whose rows of `cache` are given, while a block of `count` keys is worked on for K/V
// head `kv_head`. Heads that are visited together share it out between them.
static Ahead ahead_of(const AttentionProblem& problem, const Cache& cache, const KeyBlock& next,
                      const char* const* rows, int kv_head, int64_t count) {
  Ahead ahead = kNothingAhead;
  if (next.count() == 0 || !next.mapped) return ahead;
  const int64_t streams = kStreams, heads = heads_inside(cache) ? problem.kv_heads : 1;
  const int64_t done = heads > 1 ? kv_head * next.count() / streams : 0;
  for (int64_t i = 0; i < streams; i++) {
    ahead.places[i] = rows[i * next.count() / streams + done / heads] + done % heads * cache.head_stride;
  }
  ahead.bytes = cache.row_stride / heads * next.count() / count;
  return ahead;
}

// A block, and what to ask for of the next one's K and V meanwhile.
struct Turn {
  const KeyBlock& block;
  Ahead keys, values;
};

static void block_scores(const AttentionProblem& problem, int kv_head, int head, int group, const Turn& turn,
                         const RowsScratch& s) {
  const KeyBlock& block = turn.block;
  const RowsProduct dots = dot_rows_for(problem.key.element, group);
  const int64_t count = block.count(), offset = (kv_head - block.head) * problem.key.head_stride;
  for (int64_t i = 0; i < count;) {
    int64_t next = block.mapped ? count : i;
    while (next < count && block.keys[next]) next++;
    if (next > i && problem.int8_dots) {
      problem.int8_dots(s.queries + head * s.query_width, s.query_width, group, block.keys + i, offset, next - i,
                        problem.head_size, s.scores + i, s.score_stride);
    } else if (next > i) {
      dots(s.queries + head * s.query_width, s.query_width, block.keys + i, offset, next - i, problem.head_size,
           s.scores + i, s.score_stride, turn.keys);
    }
    for (i = next; i < count && !block.keys[i]; i++) {
      for (int g = 0; g < group; g++) s.scores[g * s.score_stride + i] = kNegativeInfinity;
    }
  }
}

static bool seen_by_group(const RowsScratch& s, int group, int64_t i) {
  float total = 0;
  for (int g = 0; g < group; g++) total += s.scores[g * s.score_stride + i];
  return total > 0;
}

// Adds weights x V. Where keys may be hidden from all heads, those are left out: they may hold NaN.
static void block_values(const AttentionProblem& problem, int kv_head, int head, int group, const Turn& turn,
                         const RowsScratch& s) {
  const KeyBlock& block = turn.block;
  const RowsProduct accumulate = accumulate_rows_for(problem.value.element, group);
  const int64_t count = block.count(), offset = (kv_head - block.head) * problem.value.head_stride;
  const bool any_hidden = problem.bias.data || !block.mapped;
  for (int64_t i = 0; i < count;) {
    int64_t next = any_hidden ? i : count;
    while (next < count && seen_by_group(s, group, next)) next++;
    if (next > i) {
      accumulate(s.scores + i, s.score_stride, block.values + i, offset, next - i, problem.v_head_size,
                 s.sums + head * s.value_width, s.value_width, turn.values);
    }
    for (i = next; i < count && !seen_by_group(s, group, i); i++) {
    }
  }
}

// One block for the heads [head, head + group) of K/V head `kv_head`.
static void attend_block(const AttentionProblem& problem, const Sequence& sequence, int64_t row, int kv_head, int head,
                         int group, const Turn& turn, const RowsScratch& s) {
  block_scores(problem, kv_head, head, group, turn, s);
  bool any_visible = false;
  for (int g = 0; g < group; g++) {
    float* scores = s.scores + g * s.score_stride;
    if (transforms_logits(problem)) {
      transform_logits(problem, sequence.index, head + g, row, turn.block.begin, scores, turn.block.count());
    }
    any_visible |= online_softmax(scores, turn.block.count(), s.maxima[head + g], s.denominators[head + g],
                                  s.sums + (head + g) * s.value_width, s.value_width);
  }
  if (any_visible) block_values(problem, kv_head, head, group, turn, s);
}

static void attend_head_block(const AttentionProblem& problem, const Sequence& sequence, int64_t row, int kv_head,
                              const KeyBlock& block, const KeyBlock& next, const RowsScratch& s) {
  const Turn turn = {block, ahead_of(problem, problem.key, next, next.keys, kv_head, block.count()),
                     ahead_of(problem, problem.value, next, next.values, kv_head, block.count())};
  for (int done = 0; done < problem.group;) {
    const int group = heads_together(problem.group - done);
    attend_block(problem, sequence, row, kv_head, kv_head * problem.group + done, group, turn, s);
    done += group;
  }
}

static void attend_keys(const AttentionProblem& problem, const AttentionTask& task, int64_t row, const Span& keys,
                        int64_t kv_block, const RowsScratch& s) {
  const int heads = heads_inside(problem.key) ? task.head_end - task.head_begin : 1;
  const char** addresses = s.addresses;
  auto list = [&](int head, int64_t begin) {
    const char** place = addresses;
    addresses = place == s.addresses ? place + 2 * s.score_stride : s.addresses;
    const int64_t end = smaller(keys.end, begin + kv_block);
    return list_block(problem, task.sequence, head, begin, end, place, place + s.score_stride);
  };
  KeyBlock block = list(task.head_begin, keys.begin);
  while (block.begin < block.end) {
    const bool more = block.end < keys.end;
    const int head = more ? block.head : block.head + heads;
    const KeyBlock next = head < task.head_end ? list(head, more ? block.end : keys.begin) : KeyBlock{};
    for (int visited = block.head; visited < block.head + heads; visited++) {
      attend_head_block(problem, task.sequence, row, visited, block, next, s);
    }
    block = next;
  }
}

static void attend_rows(const AttentionProblem& problem, const AttentionTask& task, int64_t kv_block, float* scratch) {
  const RowsScratch s = rows_scratch(problem, kv_block, scratch);
  const int first_head = task.head_begin * problem.group, last_head = task.head_end * problem.group;
  for (int64_t row = task.row_begin; row < task.row_end; row++) {
    for (int head = first_head; head < last_head; head++) {
      prepare_query(problem, task.sequence, row, head, s.queries + head * s.query_width);
      s.maxima[head] = kNegativeInfinity;
      s.denominators[head] = 0;
      for (int64_t c = 0; c < s.value_width; c += kLanes) store(s.sums + head * s.value_width + c, zero());
    }
    const Span span = visible_keys(problem, task.sequence, task.sequence.first + row);
    attend_keys(problem, task, row, {larger(span.begin, task.begin), smaller(span.end, task.end)}, kv_block, s);
    const int64_t stride = partial_stride(problem);
    for (int head = first_head; head < last_head; head++) {
      float* sums = s.sums + head * s.value_width;
      if (task.partial) {
        float* partial = task.partial + ((row - task.row_begin) * problem.heads + head) * stride;
        partial[0] = s.maxima[head];
        partial[1] = s.denominators[head];
        memcpy(partial + 2, sums, s.value_width * sizeof(float));
      } else {
        finish_row(problem, task.sequence, row, head, s.maxima[head], s.denominators[head], sums);
      }
    }
  }
}
