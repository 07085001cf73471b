// What happens to rows of activations beside the products: storing sums, gates, norms, and the search through logits.
#pragma once

// Calls visit(sums of a panel, token, first row, rows of the panel that there are).
template <class Visit>
PAGELOOM_INLINE void for_each_panel(const SumsShape& shape, Visit visit) {
  for (int64_t t = 0; t < shape.tokens; t++) {
    for (int p = 0; p < shape.panels; p++) {
      const int64_t row = shape.first_row + p * kLanes, left = shape.rows - row;
      visit((t * shape.panels + p) * kLanes, t, row, left < kLanes ? static_cast<int>(left) : kLanes);
    }
  }
}

static void store_sums(const float* sums, const SumsShape& shape, const LinearOutput& output) {
  for_each_panel(shape, [&](int64_t at, int64_t token, int64_t row, int count) {
    Vec value = load(sums + at);
    if (output.bias) value = add(value, load_first(output.bias + row, count));
    if (output.softcap > 0) value = soft_capped(value, set(output.softcap), set(1 / output.softcap));
    if (output.residual) value = add(value, load_first(output.residual + token * output.residual_stride + row, count));
    store_first(output.data + token * output.stride + row, value, count);
  });
}

// x / (1 + e^-x), which is 0 to float32 long before e^-x overflows.
PAGELOOM_INLINE Vec silu(Vec x) {
  const Vec bounded = max(set(-88), x);
  return div(bounded, add(set(1), exponential(sub(zero(), bounded))));
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
PAGELOOM_INLINE Vec gelu_tanh(Vec x) {
  const Vec inner = mul(set(0.7978845608028654f), fma(mul(mul(x, x), x), set(0.044715f), x));
  return mul(mul(set(0.5f), x), add(set(1), hyperbolic_tangent(inner)));
}

static void store_gated(const float* gate, const float* up, const SumsShape& shape, Activation activation, float* output,
                        int64_t stride) {
  for_each_panel(shape, [&](int64_t at, int64_t token, int64_t row, int count) {
    const Vec x = load(gate + at);
    const Vec gated = mul(activation == Activation::silu ? silu(x) : gelu_tanh(x), load(up + at));
    store_first(output + token * stride + row, gated, count);
  });
}

PAGELOOM_INLINE int lanes_left(int64_t count, int64_t i) { return count - i < kLanes ? static_cast<int>(count - i) : kLanes; }

static void rms_norm_row(const RmsNormProblem& problem, const float* x, const float* residual, float* out) {
  Vec squares = zero();
  for (int64_t i = 0; i < problem.width; i += kLanes) {
    const Vec value = load_first(x + i, lanes_left(problem.width, i));
    squares = fma(value, value, squares);
  }
  const Vec factor = set(1 / sqrtf(sum(squares) / static_cast<float>(problem.width) + problem.epsilon));
  for (int64_t i = 0; i < problem.width; i += kLanes) {
    const int count = lanes_left(problem.width, i);
    Vec value = mul(mul(load_first(x + i, count), factor), load_first(problem.weight + i, count));
    if (residual) value = add(value, load_first(residual + i, count));
    store_first(out + i, value, count);
  }
}

static float log_sum_exp(const float* x, int64_t count, float* largest_x) {
  Vec top = set(kNegativeInfinity), poison = zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec value = load(x + i);
    top = max(top, value);
    poison = fma(value, zero(), poison);  // NaN once a value is not finite
  }
  float most = largest(top), bad = sum(poison);
  for (int64_t j = i; j < count; j++) {
    most = x[j] > most ? x[j] : most;
    bad += x[j] * 0;
  }
  *largest_x = most;
  Vec total = zero();
  for (i = 0; i + kLanes <= count; i += kLanes) total = add(total, exponential(sub(load(x + i), set(most))));
  float rest = sum(total);
  for (; i < count; i++) rest += expf(x[i] - most);
  return most + logf(rest) + bad;
}

static int64_t next_above(const float* x, int64_t begin, int64_t count, float threshold) {
  const Vec bound = set(threshold);
  int64_t i = begin;
  while (i + kLanes <= count && !any_less(bound, load(x + i))) i += kLanes;
  while (i < count && !(x[i] > threshold)) i++;
  return i;
}
