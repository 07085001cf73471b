// The two ends of an attention row: Q brought into unit order with all factors of the logits, and the output from its
// unnormalised sum.
#pragma once

PAGELOOM_INLINE float key_factor(const AttentionProblem& problem) {
  const Cache& key = problem.key;
  return key.scale && !key.per_channel ? problem.scale * key.scale[0] : problem.scale;
}

// Q of one head times scale and K's scale, in K's unit order, zeros behind. `out` has padded(head_size) floats.
static void prepare_query(const AttentionProblem& problem, const Sequence& sequence, int64_t row, int head,
                          float* out) {
  const int channels = problem.head_size, width = padded(channels);
  const Cache& key = problem.key;
  load_floats(row_of(problem.query, sequence, row, head), problem.query.element, channels, out);
  for (int c = channels; c < width; c++) out[c] = 0;
  const Vec factor = set(key_factor(problem));
  const float* scales = key.per_channel ? key.scale + static_cast<int64_t>(head / problem.group) * channels : nullptr;
  for (int c = 0; c < width; c += kUnit) {
    Vec low = mul(load(out + c), factor), high = mul(load(out + c + kLanes), factor);
    if (scales) {
      low = mul(low, load_first(scales + c, static_cast<int>(smaller(kLanes, channels - c))));
      const int left = static_cast<int>(larger(0, smaller(kLanes, channels - c - kLanes)));
      high = left ? mul(high, load_first(scales + c + kLanes, left)) : zero();
    }
    if (key.element == Element::i4) deinterleave(low, high, low, high);
    store(out + c, low);
    store(out + c + kLanes, high);
  }
}

PAGELOOM_INLINE float sink_of(const AttentionProblem& problem, int head) {
  float sink = kNegativeInfinity;
  if (problem.sinks)
    load_floats(problem.sinks + head * (problem.sink_element == Element::f32 ? 4 : 2), problem.sink_element, 1, &sink);
  return sink;
}

// Sink, division, V's scale, V's unit order, the output's type; log-sum-exp. `sums` has padded(v_head_size) floats and
// is overwritten.
static void finish_row(const AttentionProblem& problem, const Sequence& sequence, int64_t row, int head, float maximum,
                       float denominator, float* sums) {
  const int channels = problem.v_head_size, width = padded(channels);
  float rescale = 1;
  if (problem.sinks) {
    const float sink = sink_of(problem, head), top = sink > maximum ? sink : maximum;
    if (top > kNegativeInfinity) {
      rescale = expf(maximum - top);
      denominator = denominator * rescale + expf(sink - top);
      maximum = top;
    }
  }
  const Cache& value = problem.value;
  float factor = denominator == 0 ? 0 : rescale / denominator;
  if (value.scale && !value.per_channel) factor *= value.scale[0];
  const float* scales =
      value.per_channel ? value.scale + static_cast<int64_t>(head / problem.group) * channels : nullptr;
  for (int c = 0; c < width; c += kUnit) {
    Vec low = mul(load(sums + c), set(factor)), high = mul(load(sums + c + kLanes), set(factor));
    if (value.element == Element::i4) interleave(low, high, low, high);
    if (scales) {
      low = mul(low, load_first(scales + c, static_cast<int>(smaller(kLanes, channels - c))));
      const int left = static_cast<int>(larger(0, smaller(kLanes, channels - c - kLanes)));
      high = left ? mul(high, load_first(scales + c + kLanes, left)) : zero();
    }
    store(sums + c, low);
    store(sums + c + kLanes, high);
  }
  store_floats(row_of(problem.output, sequence, row, head), problem.output.element, channels, sums);
  const LogSumExp& lse = problem.log_sum_exp;
  if (lse.data) {
    const int64_t first =
        lse.sequence_stride ? sequence.index * lse.sequence_stride : sequence.query_row * lse.row_stride;
    lse.data[first + row * lse.row_stride + head * lse.head_stride] =
        denominator == 0 ? kNegativeInfinity : maximum + logf(denominator);
  }
}

static int64_t partial_stride(const AttentionProblem& problem) { return 2 + padded(problem.v_head_size); }

// Joins the partial results of all splits of one row.
static void merge(const AttentionProblem& problem, const MergeTask& task, float* scratch) {
  const int64_t stride = partial_stride(problem);
  const int width = padded(problem.v_head_size);
  for (int head = 0; head < problem.heads; head++) {
    const float* first = task.partials + head * stride;
    float maximum = kNegativeInfinity, denominator = 0;
    for (int s = 0; s < task.splits; s++) {
      const float top = first[s * task.split_stride];
      maximum = top > maximum ? top : maximum;
    }
    for (int c = 0; c < width; c++) scratch[c] = 0;
    for (int s = 0; s < task.splits; s++) {
      const float* partial = first + s * task.split_stride;
      if (partial[1] == 0) continue;
      const float weight = expf(partial[0] - maximum);
      denominator += weight * partial[1];
      for (int c = 0; c < width; c += kLanes)
        store(scratch + c, fma(set(weight), load(partial + 2 + c), load(scratch + c)));
    }
    finish_row(problem, task.sequence, task.row, head, maximum, denominator, scratch);
  }
}
