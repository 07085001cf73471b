#include <algorithm>
#include <utility>

#include "linear/calls.hpp"
#include "linear/parallel.hpp"

namespace pageloom {

namespace {

using Candidate = std::pair<float, int32_t>;

bool better(const Candidate& a, const Candidate& b) { return a.first > b.first || (a.first == b.first && a.second < b.second); }

// The best `wanted` of a row. Tokens come in ascending order, so that one equal to the worst of those kept is no better.
void find_best(const LinearKernels& kernels, const float* logits, int64_t vocabulary, int64_t wanted,
               std::vector<Candidate>& best) {
  best.clear();
  int64_t token = 0;
  for (; token < std::min(wanted, vocabulary); token++) best.emplace_back(logits[token], static_cast<int32_t>(token));
  std::make_heap(best.begin(), best.end(), better);  // the worst is first
  while ((token = kernels.next_above(logits, token, vocabulary, best.front().first)) < vocabulary) {
    std::pop_heap(best.begin(), best.end(), better);
    best.back() = {logits[token], static_cast<int32_t>(token)};
    std::push_heap(best.begin(), best.end(), better);
    token++;
  }
  std::sort_heap(best.begin(), best.end(), better);
}

}  // namespace

void CandidatesCall::run() const {
  const int64_t rows = count.get(), wanted = candidates.get();
  for (int64_t i = 0; i < adjustments.count.get(); i++) {
    const int64_t row = adjustments.rows[i], token = adjustments.tokens[i];
    if (row < 0 || row >= rows || token < 0 || token >= logits.width) continue;
    float& logit = logits.data[row * logits.stride + token];
    const float divisor = adjustments.divisors[i];
    logit = (logit > 0 ? logit / divisor : logit * divisor) + adjustments.biases[i];
  }
  parallel_for(rows, [&](int64_t row) {
    static thread_local std::vector<Candidate> best;
    const float* from = logits.data + row * logits.stride;
    float largest;
    log_sum_exp[row] = kernels->log_sum_exp(from, logits.width, &largest);
    find_best(*kernels, from, logits.width, wanted, best);
    for (size_t i = 0; i < best.size(); i++) {
      values[row * stride + static_cast<int64_t>(i)] = best[i].first;
      ids[row * stride + static_cast<int64_t>(i)] = best[i].second;
    }
  });
}

}  // namespace pageloom
