// Attention of single query rows (decode): K and V are read in place, each row once for all heads of its group, with an
// online softmax over blocks of keys.
#pragma once

// q and sums of all heads, their maxima and denominators, the scores of a block and the addresses of the rows of two.
struct RowsScratch {
  float *queries, *sums, *maxima, *denominators, *scores;
  const char** addresses;
  int64_t query_width, value_width, score_stride;
  bool few_keys;  // fewer than pay for more than products of floats
};

static RowsScratch rows_scratch(const AttentionProblem& problem, int64_t kv_block, float* scratch) {
  RowsScratch s;
  s.query_width = padded(problem.head_size) + Products::query_floats(problem);
  s.value_width = padded(problem.v_head_size);
  s.score_stride = (kv_block + 15) / 16 * 16;
  s.addresses = reinterpret_cast<const char**>(scratch);
  s.scores = reinterpret_cast<float*>(s.addresses + 4 * s.score_stride);
  s.queries = s.scores + problem.heads * s.score_stride;
  s.sums = s.queries + problem.heads * s.query_width;
  s.maxima = s.sums + problem.heads * s.value_width;
  s.denominators = s.maxima + problem.heads;
  s.few_keys = false;
  return s;
}

static size_t rows_scratch_size(const AttentionProblem& problem, int64_t kv_block) {
  const int64_t addresses = 4 * (sizeof(char*) / sizeof(float)), stride = (kv_block + 15) / 16 * 16;
  const int64_t query = padded(problem.head_size) + Products::query_floats(problem);
  return static_cast<size_t>(addresses * stride + problem.heads * (stride + query + padded(problem.v_head_size) + 2));
}

// Brings `logits` of one head to weights relative to its running maximum, which leaves NaN out.
static void online_softmax(float* logits, int64_t count, float& maximum, float& denominator, float* sums,
                           int64_t width) {
  Vec top = set(kNegativeInfinity);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) top = max(load(logits + i), top);
  float block_maximum = largest(top);
  for (int64_t j = i; j < count; j++) block_maximum = logits[j] > block_maximum ? logits[j] : block_maximum;
  if (block_maximum > maximum) {
    const float rescale = expf(maximum - block_maximum);
    maximum = block_maximum;
    denominator *= rescale;
    for (int64_t c = 0; c < width; c += kLanes) store(sums + c, mul(load(sums + c), set(rescale)));
  }
  const Vec shift = set(maximum > kNegativeInfinity ? maximum : 0);
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
}

// Rows [begin, end) of those of a block of K or V: what is read for one head before it is read for the next.
struct Piece {
  const Cache& cache;
  const char* const* rows;
  int64_t begin, end;
  bool mapped;  // whether none of the block's rows is nullptr
  int64_t count() const { return end - begin; }
};

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

// What to ask for of piece `next` while `count` rows are worked on for the `head`-th of `heads` K/V heads that are
// visited together: they share it out between them.
static Ahead ahead_of(const AttentionProblem& problem, const Piece& next, int head, int heads, int64_t count) {
  Ahead ahead = kNothingAhead;
  ahead.apart = heads_inside(problem.key) && problem.key.head_stride <= 64;
  if (next.count() <= 0 || !next.mapped) return ahead;
  const Cache& cache = next.cache;
  const bool some = heads_inside(cache) && heads < problem.kv_heads;
  const int64_t streams = kStreams, columns = some ? heads * cache.head_stride : cache.row_stride;
  const int64_t done = head * next.count() / streams;
  for (int64_t i = 0; i < streams; i++) {
    const char* row = next.rows[next.begin + i * next.count() / streams + done / heads];
    ahead.places[i] = row + done % heads * cache.head_stride;
  }
  ahead.bytes = columns / heads * next.count() / larger(count, streams);
  ahead.row_stride = cache.row_stride;
  ahead.columns_log2 = some ? __builtin_ctzll(columns) : 62;
  return ahead;
}

// Query heads [head, head + group) of K/V head `kv_head`, which are worked on together.
struct HeadGroup {
  int kv_head, head, group;
};

template <class Visit>
static void for_groups(const AttentionProblem& problem, int kv_head_begin, int kv_head_end, Visit visit) {
  for (int kv_head = kv_head_begin; kv_head < kv_head_end; kv_head++) {
    for (int done = 0; done < problem.group;) {
      const int group = heads_together(problem.group - done);
      visit(HeadGroup{kv_head, kv_head * problem.group + done, group});
      done += group;
    }
  }
}

static void piece_scores(const AttentionProblem& problem, const HeadGroup& heads, int64_t offset, const Piece& piece,
                         const Ahead& ahead, const RowsScratch& s) {
  const RowsProduct dots =
      s.few_keys ? dot_rows_for(problem.key.element, heads.group) : Products::dots(problem, heads.group);
  const float* queries = s.queries + heads.head * s.query_width;
  float* scores = s.scores + heads.head * s.score_stride;
  for (int64_t i = piece.begin; i < piece.end;) {
    int64_t next = piece.mapped ? piece.end : i;
    while (next < piece.end && piece.rows[next]) next++;
    if (next > i) {
      dots(queries, s.query_width, piece.rows + i, offset, next - i, problem.head_size, scores + i, s.score_stride,
           ahead);
    }
    for (i = next; i < piece.end && !piece.rows[i]; i++) {
      for (int g = 0; g < heads.group; g++) scores[g * s.score_stride + i] = kNegativeInfinity;
    }
  }
}

static bool seen_by_group(const float* weights, int64_t stride, int group, int64_t i) {
  float total = 0;
  for (int g = 0; g < group; g++) total += weights[g * stride + i];
  return total != 0;
}

// Adds weights x V. Where keys may be hidden from all heads, those are left out: they may hold NaN.
static void piece_values(const AttentionProblem& problem, const HeadGroup& heads, int64_t offset, const Piece& piece,
                         const Ahead& ahead, const RowsScratch& s) {
  const RowsProduct accumulate =
      s.few_keys ? accumulate_rows_for(problem.value.element, heads.group) : Products::sums(problem, heads.group);
  const float* weights = s.scores + heads.head * s.score_stride;
  const bool any_hidden = problem.bias.data || !piece.mapped;
  for (int64_t i = piece.begin; i < piece.end;) {
    int64_t next = any_hidden ? i : piece.end;
    while (next < piece.end && seen_by_group(weights, s.score_stride, heads.group, next)) next++;
    if (next > i) {
      accumulate(weights + i, s.score_stride, piece.rows + i, offset, next - i, problem.v_head_size,
                 s.sums + heads.head * s.value_width, s.value_width, ahead);
    }
    for (i = next; i < piece.end && !seen_by_group(weights, s.score_stride, heads.group, i); i++) {
    }
  }
}

// Block `block` for `kv_heads` K/V heads from its own on: K piece by piece, the softmax, V piece by piece.
static void attend_block(const AttentionProblem& problem, const Sequence& sequence, int64_t row, int kv_heads,
                         const RowBlocks& blocks, const KeyBlock& block, const KeyBlock& next, const RowsScratch& s) {
  const int64_t count = block.count(), size = blocks.piece;
  auto keys = [&](const KeyBlock& of, int64_t begin) {
    return Piece{problem.key, of.keys, begin, smaller(begin + size, of.count()), of.mapped};
  };
  auto values = [&](int64_t begin) {
    return Piece{problem.value, block.values, begin, smaller(begin + size, count), block.mapped};
  };
  auto for_heads = [&](const Piece& piece, const Piece& after, auto work) {
    for_groups(problem, block.head, block.head + kv_heads, [&](const HeadGroup& heads) {
      const int64_t offset = (heads.kv_head - block.head) * piece.cache.head_stride;
      Ahead ahead = kNothingAhead;
      if (blocks.ask_ahead) ahead = ahead_of(problem, after, heads.kv_head - block.head, kv_heads, piece.count());
      work(problem, heads, offset, piece, ahead, s);
    });
  };
  for (int64_t i = 0; i < count; i += size) {
    for_heads(keys(block, i), i + size < count ? keys(block, i + size) : values(0), piece_scores);
  }
  const int begin = block.head * problem.group, end = begin + kv_heads * problem.group;
  for (int head = begin; head < end; head++) {
    float* scores = s.scores + head * s.score_stride;
    if (transforms_logits(problem)) {
      transform_logits(problem, sequence.index, head, row, block.begin, scores, count);
    }
    online_softmax(scores, count, s.maxima[head], s.denominators[head], s.sums + head * s.value_width, s.value_width);
  }
  for (int64_t i = 0; i < count; i += size) {
    for_heads(values(i), i + size < count ? values(i + size) : keys(next, 0), piece_values);
  }
}

static void attend_keys(const AttentionProblem& problem, const AttentionTask& task, int64_t row, const Span& keys,
                        const RowBlocks& blocks, const RowsScratch& s) {
  const int heads = heads_inside(problem.key) ? task.head_end - task.head_begin : 1;
  const char** addresses = s.addresses;
  auto list = [&](int head, int64_t begin) {
    const char** place = addresses;
    addresses = place == s.addresses ? place + 2 * s.score_stride : s.addresses;
    const int64_t end = smaller(keys.end, begin + blocks.block);
    return list_block(problem, task.sequence, head, begin, end, place, place + s.score_stride);
  };
  KeyBlock block = list(task.head_begin, keys.begin);
  while (block.begin < block.end) {
    const bool more = block.end < keys.end;
    const int head = more ? block.head : block.head + heads;
    const KeyBlock next = head < task.head_end ? list(head, more ? block.end : keys.begin) : KeyBlock{};
    attend_block(problem, task.sequence, row, heads, blocks, block, next, s);
    block = next;
  }
}

static void attend_rows(const AttentionProblem& problem, const AttentionTask& task, const RowBlocks& blocks,
                        float* scratch) {
  RowsScratch s = rows_scratch(problem, blocks.block, scratch);
  const int first_head = task.head_begin * problem.group, last_head = task.head_end * problem.group;
  for (int64_t row = task.row_begin; row < task.row_end; row++) {
    const Span span = visible_keys(problem, task.sequence, task.sequence.first + row);
    const Span keys = {larger(span.begin, task.begin), smaller(span.end, task.end)};
    s.few_keys = keys.end - keys.begin < kLanes;
    for (int head = first_head; head < last_head; head++) {
      prepare_query(problem, task.sequence, row, head, s.queries + head * s.query_width);
      if (!s.few_keys) Products::prepare_query(problem, s.queries + head * s.query_width);
      s.maxima[head] = kNegativeInfinity;
      s.denominators[head] = 0;
      for (int64_t c = 0; c < s.value_width; c += kLanes) store(s.sums + head * s.value_width + c, zero());
    }
    attend_keys(problem, task, row, keys, blocks, s);
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
