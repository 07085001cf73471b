// Attention of single query rows with the scores of all keys kept: what the other kernels are held against, and the
// only one that can hand the scores out.
#pragma once

static size_t naive_scratch_size(const AttentionProblem& problem, int64_t keys) {
  return padded(problem.head_size) + padded(problem.v_head_size) + static_cast<size_t>(keys + kDots);
}

// Scaled products of keys [begin, end); -inf where no block is mapped.
static void all_dots(const AttentionProblem& problem, const Sequence& sequence, int kv_head, const float* query,
                     int64_t begin, int64_t end, float* scores) {
  const RowsProduct dots = dot_rows_for(problem.key.element, 1);
  constexpr int64_t kRows = 64;
  const char* rows[kRows];
  for (int64_t t = begin; t < end; t += kRows) {
    const int64_t count = smaller(kRows, end - t);
    const bool mapped = list_rows(problem.key, problem.addressing, sequence.index, kv_head, t, t + count, rows);
    if (mapped) {
      dots(query, 0, rows, 0, count, problem.head_size, scores + (t - begin), 0, kNothingAhead);
      continue;
    }
    for (int64_t i = 0; i < count; i++) {
      float* score = scores + (t - begin) + i;
      *score = kNegativeInfinity;
      if (rows[i]) dots(query, 0, rows + i, 0, 1, problem.head_size, score, 0, kNothingAhead);
    }
  }
}

static void capture(const QkOutput& qk, const Sequence& sequence, int64_t row, int head, const float* values,
                    int64_t begin, int64_t end, float hidden) {
  const int size = qk.element == Element::f32 ? 4 : 2;
  char* out = qk.data + sequence.index * qk.sequence_stride + head * qk.head_stride + row * qk.row_stride;
  for (int64_t t = 0; t < qk.columns; t++) {
    float value = t >= begin && t < end ? values[t - begin] : hidden;
    if (value == kNegativeInfinity) value = hidden;
    store_floats(out + t * size, qk.element, 1, &value);
  }
}

static void attend_naive(const AttentionProblem& problem, const AttentionTask& task, float* scratch) {
  float* query = scratch;
  float* sums = query + padded(problem.head_size);
  float* scores = sums + padded(problem.v_head_size);
  const Sequence& sequence = task.sequence;
  const QkOutput& qk = problem.qk;
  const int width = padded(problem.v_head_size);
  const RowsProduct accumulate = accumulate_rows_for(problem.value.element, 1);
  const int first_head = task.head_begin * problem.group, last_head = task.head_end * problem.group;
  for (int64_t row = task.row_begin; row < task.row_end; row++) {
    const Span span = visible_keys(problem, sequence, sequence.first + row);
    const int64_t begin = larger(span.begin, task.begin), end = smaller(span.end, task.end), count = end - begin;
    for (int head = first_head; head < last_head; head++) {
      const int kv_head = head / problem.group;
      prepare_query(problem, sequence, row, head, query);
      if (qk.data && qk.stage <= QkStage::softcapped) {
        const int64_t keys = smaller(qk.columns, sequence.total);
        all_dots(problem, sequence, kv_head, query, 0, keys, scores);
        if (qk.stage == QkStage::softcapped && problem.softcap > 0) soft_cap_all(problem.softcap, scores, keys);
        capture(qk, sequence, row, head, scores, 0, keys, qk.hidden);
      }
      all_dots(problem, sequence, kv_head, query, begin, end, scores);
      transform_logits(problem, sequence.index, head, row, begin, scores, count);
      if (qk.data && qk.stage == QkStage::masked) capture(qk, sequence, row, head, scores, begin, end, qk.hidden);
      float maximum = kNegativeInfinity, denominator = 0;
      for (int c = 0; c < width; c++) sums[c] = 0;
      const float sink = sink_of(problem, head);
      online_softmax(scores, count, maximum, denominator, sums, width);
      for (int64_t t = begin; t < end; t++) {
        if (scores[t - begin] == 0) continue;
        const Run run = run_at(problem.value, problem.addressing, sequence.index, kv_head, t, t + 1);
        accumulate(scores + (t - begin), 0, &run.data, 0, 1, problem.v_head_size, sums, 0, kNothingAhead);
      }
      if (qk.data && qk.stage == QkStage::probabilities) {
        const float top = sink > maximum ? sink : maximum;
        const float rescale = top > kNegativeInfinity ? expf(maximum - top) : 1;
        const float all = denominator * rescale + (sink > kNegativeInfinity ? expf(sink - top) : 0);
        for (int64_t i = 0; i < count; i++) scores[i] = all == 0 ? 0 : scores[i] * (rescale / all);
        capture(qk, sequence, row, head, scores, begin, end, 0);
      }
      finish_row(problem, sequence, row, head, maximum, denominator, sums);
    }
  }
}
