// What happens to the scaled products of one row and its keys before the softmax.
#pragma once

PAGELOOM_INLINE bool transforms_logits(const AttentionProblem& problem) {
  return problem.softcap > 0 || problem.bias.data != nullptr;
}

// The bias of keys [position, position + count) for one (row, head): 0 or -inf for a boolean one, -inf past its
// columns.
static void load_bias(const Bias& bias, int64_t sequence, int64_t head, int64_t row, int64_t position, int64_t count,
                      float* out) {
  const char* data = bias.data + sequence * bias.sequence_stride + head * bias.head_stride + row * bias.row_stride +
                     position * bias.column_stride;
  const int64_t given = larger(0, smaller(count, bias.columns - position));
  for (int64_t i = 0; i < given; i++, data += bias.column_stride) {
    if (bias.element == Element::boolean) {
      out[i] = *data ? 0 : kNegativeInfinity;
    } else {
      load_floats(data, bias.element, 1, out + i);
    }
  }
  for (int64_t i = given; i < count; i++) out[i] = kNegativeInfinity;
}

static void soft_cap_all(float softcap, float* logits, int64_t count) {
  const Vec cap = set(softcap), inverse = set(1 / softcap);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int n = static_cast<int>(smaller(kLanes, count - i));
    store_first(logits + i, soft_capped(load_first(logits + i, n), cap, inverse), n);
  }
}

// Adds the bias; what it hides becomes -inf whatever it was, since hidden keys may hold anything.
static void add_bias(const AttentionProblem& problem, int64_t sequence, int head, int64_t row, int64_t position,
                     float* logits, int64_t count) {
  constexpr int kPiece = 64;
  alignas(64) float bias[kPiece];
  const Vec hidden = set(kNegativeInfinity);
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t piece = smaller(kPiece, count - first);
    load_bias(problem.bias, sequence, head, row, position + first, piece, bias);
    for (int64_t i = 0; i < piece; i += kLanes) {
      const int n = static_cast<int>(smaller(kLanes, piece - i));
      Vec b = load_first(bias + i, n), x = load_first(logits + first + i, n);
      store_first(logits + first + i, if_less(hidden, b, add(x, b), hidden), n);
    }
  }
}

// Scores [count][lanes] of keys [begin, begin + count): -inf where no block is mapped.
static void hide_unmapped(const AttentionProblem& problem, int64_t sequence, int64_t begin, int64_t count,
                          int64_t lanes, float* scores) {
  for (int64_t t = begin; t < begin + count;) {
    const Run run = run_at(problem.key, problem.addressing, sequence, 0, t, begin + count);
    if (!run.data) {
      for (int64_t i = 0; i < run.count * lanes; i++) scores[(t - begin) * lanes + i] = kNegativeInfinity;
    }
    t += run.count;
  }
}

// Of keys without a block too, which a softcap would bring back into sight: they are hidden after it.
static void transform_logits(const AttentionProblem& problem, int64_t sequence, int head, int64_t row, int64_t position,
                             float* logits, int64_t count) {
  if (problem.softcap > 0) soft_cap_all(problem.softcap, logits, count);
  if (problem.bias.data) add_bias(problem, sequence, head, row, position, logits, count);
  if (problem.addressing.table) hide_unmapped(problem, sequence, position, count, 1, logits);
}
