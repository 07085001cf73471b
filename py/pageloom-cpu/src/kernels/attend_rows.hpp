// Attention of single query rows (decode): K and V are read in place, each row once for all heads of its group, with an
// online softmax over blocks of keys.
#pragma once

// q and sums of all heads, then maxima and denominators, the scores of a block and the addresses of its rows.
struct RowsScratch {
  float *queries, *sums, *maxima, *denominators, *scores;
  const char **keys, **values;
  int64_t query_width, value_width, score_stride;
};

static RowsScratch rows_scratch(const AttentionProblem& problem, int64_t kv_block, float* scratch) {
  RowsScratch s;
  s.query_width = padded(problem.head_size);
  s.value_width = padded(problem.v_head_size);
  s.score_stride = (kv_block + 15) / 16 * 16;
  s.keys = reinterpret_cast<const char**>(scratch);
  s.values = s.keys + s.score_stride;
  s.scores = reinterpret_cast<float*>(s.values + s.score_stride);
  s.queries = s.scores + kMaxGroup * s.score_stride;
  s.sums = s.queries + problem.heads * s.query_width;
  s.maxima = s.sums + problem.heads * s.value_width;
  s.denominators = s.maxima + problem.heads;
  return s;
}

static size_t rows_scratch_size(const AttentionProblem& problem, int64_t kv_block) {
  const int64_t addresses = 2 * (sizeof(char*) / sizeof(float)), stride = (kv_block + 15) / 16 * 16;
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

// What to ask for of `cache` while keys [begin, end) are worked on: the keys that follow, before `last`. Heads that lie
// inside a token share its memory out between them, so that it is asked for in one piece.
static Ahead next_keys(const AttentionProblem& problem, const Cache& cache, const Sequence& sequence, int kv_head,
                       int64_t begin, int64_t end, int64_t last) {
  const int64_t count = end - begin, following = smaller(count, last - end);
  if (following <= 0) return {nullptr, 0};
  const bool heads_inside = cache.head_stride < cache.row_stride;
  const int64_t first = heads_inside ? end + following * kv_head / problem.kv_heads : end;
  const Run run = run_at(cache, problem.addressing, sequence.index, heads_inside ? 0 : kv_head, first, last);
  if (!run.data) return {nullptr, 0};
  const int64_t share = heads_inside ? following / problem.kv_heads : following;
  return {run.data, smaller(share, run.count) * cache.row_stride / count};
}

// A block of keys [begin, end), whose rows are listed; `last` ends the keys of the task.
struct KeyBlock {
  int64_t begin, end, last;
  bool mapped;
};

static KeyBlock list_block(const AttentionProblem& problem, const Sequence& sequence, int64_t begin, int64_t end,
                           int64_t last, const RowsScratch& s) {
  const bool mapped = list_rows(problem.key, problem.addressing, sequence.index, begin, end, s.keys);
  list_rows(problem.value, problem.addressing, sequence.index, begin, end, s.values);
  return {begin, end, last, mapped};
}

static void block_scores(const AttentionProblem& problem, const Sequence& sequence, int kv_head, int head, int group,
                         const KeyBlock& block, const RowsScratch& s) {
  const RowsProduct dots = dot_rows_for(problem.key.element, group);
  const int64_t count = block.end - block.begin, offset = kv_head * problem.key.head_stride;
  const Ahead ahead = next_keys(problem, problem.key, sequence, kv_head, block.begin, block.end, block.last);
  for (int64_t i = 0; i < count;) {
    int64_t next = block.mapped ? count : i;
    while (next < count && s.keys[next]) next++;
    if (next > i && problem.int8_dots) {
      problem.int8_dots(s.queries + head * s.query_width, s.query_width, group, s.keys + i, offset, next - i,
                        problem.head_size, s.scores + i, s.score_stride);
    } else if (next > i) {
      dots(s.queries + head * s.query_width, s.query_width, s.keys + i, offset, next - i, problem.head_size,
           s.scores + i, s.score_stride, {ahead.data + i * ahead.bytes, ahead.bytes});
    }
    for (i = next; i < count && !s.keys[i]; i++) {
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
static void block_values(const AttentionProblem& problem, const Sequence& sequence, int kv_head, int head, int group,
                         const KeyBlock& block, const RowsScratch& s) {
  const RowsProduct accumulate = accumulate_rows_for(problem.value.element, group);
  const int64_t count = block.end - block.begin, offset = kv_head * problem.value.head_stride;
  const bool any_hidden = problem.bias.data || !block.mapped;
  const Ahead ahead = next_keys(problem, problem.value, sequence, kv_head, block.begin, block.end, block.last);
  for (int64_t i = 0; i < count;) {
    int64_t next = any_hidden ? i : count;
    while (next < count && seen_by_group(s, group, next)) next++;
    if (next > i) {
      accumulate(s.scores + i, s.score_stride, s.values + i, offset, next - i, problem.v_head_size,
                 s.sums + head * s.value_width, s.value_width, {ahead.data + i * ahead.bytes, ahead.bytes});
    }
    for (i = next; i < count && !seen_by_group(s, group, i); i++) {
    }
  }
}

// One block for the heads [head, head + group) of K/V head `kv_head`.
static void attend_block(const AttentionProblem& problem, const Sequence& sequence, int64_t row, int kv_head, int head,
                         int group, const KeyBlock& block, const RowsScratch& s) {
  block_scores(problem, sequence, kv_head, head, group, block, s);
  const int64_t count = block.end - block.begin;
  bool any_visible = false;
  for (int g = 0; g < group; g++) {
    float* scores = s.scores + g * s.score_stride;
    if (transforms_logits(problem)) {
      transform_logits(problem, sequence.index, head + g, row, block.begin, scores, count);
    }
    any_visible |= online_softmax(scores, count, s.maxima[head + g], s.denominators[head + g],
                                  s.sums + (head + g) * s.value_width, s.value_width);
  }
  if (any_visible) block_values(problem, sequence, kv_head, head, group, block, s);
}

static void attend_head_block(const AttentionProblem& problem, const Sequence& sequence, int64_t row, int kv_head,
                              const KeyBlock& block, const RowsScratch& s) {
  for (int done = 0; done < problem.group;) {
    const int group = heads_together(problem.group - done);
    attend_block(problem, sequence, row, kv_head, kv_head * problem.group + done, group, block, s);
    done += group;
  }
}

static void attend_rows(const AttentionProblem& problem, const AttentionTask& task, int64_t kv_block, float* scratch) {
  const RowsScratch s = rows_scratch(problem, kv_block, scratch);
  const int first_head = task.head_begin * problem.group, last_head = task.head_end * problem.group;
  // Heads that lie beside each other in a token are visited together, so that a token is read as one piece.
  const bool heads_inside = problem.key.head_stride < problem.key.row_stride;
  for (int64_t row = task.row_begin; row < task.row_end; row++) {
    for (int head = first_head; head < last_head; head++) {
      prepare_query(problem, task.sequence, row, head, s.queries + head * s.query_width);
      s.maxima[head] = kNegativeInfinity;
      s.denominators[head] = 0;
      for (int64_t c = 0; c < s.value_width; c += kLanes) store(s.sums + head * s.value_width + c, zero());
    }
    const Span span = visible_keys(problem, task.sequence, task.sequence.first + row);
    const int64_t begin = larger(span.begin, task.begin), end = smaller(span.end, task.end);
    if (heads_inside) {
      for (int64_t t = begin; t < end; t += kv_block) {
        const KeyBlock block = list_block(problem, task.sequence, t, smaller(end, t + kv_block), end, s);
        for (int head = task.head_begin; head < task.head_end; head++) {
          attend_head_block(problem, task.sequence, row, head, block, s);
        }
      }
    } else {
      for (int head = task.head_begin; head < task.head_end; head++) {
        for (int64_t t = begin; t < end; t += kv_block) {
          const KeyBlock block = list_block(problem, task.sequence, t, smaller(end, t + kv_block), end, s);
          attend_head_block(problem, task.sequence, row, head, block, s);
        }
      }
    }
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
