// Attention of many query rows at once (prefill). A panel's lanes are query rows: scores are K Q^T and the output is
// V^T P^T, so that K and V are read along their rows, maxima and sums of the softmax go down the panel, and a mask is a
// comparison of lanes. A block of K and V is converted once for all panels of a task.
#pragma once

static bool seen_by_some(const float* weights, int64_t lanes) {
  float total = 0;
  for (int64_t lane = 0; lane < lanes; lane++) total += weights[lane];
  return total != 0;
}

// Adds weights x V of keys [begin, begin + count) of the block. Where keys may be hidden from all rows, those are left
// out: they may hold NaN.
template <int N>
static void add_values(const FloatGroups& values, int64_t begin, int64_t count, bool any_hidden, const float* weights,
                       float* sums) {
  constexpr int64_t kWidth = N * kLanes;
  for (int64_t t = 0; t < count;) {
    int64_t next = count;
    if (any_hidden) {
      for (; t < count && !seen_by_some(weights + t * kWidth, kWidth); t++) {
      }
      for (next = t; next < count && seen_by_some(weights + next * kWidth, kWidth); next++) {
      }
    }
    for (int64_t c = 0; c < values.width; c += kTileRows) {
      const float* group = values.data + c / kTileRows * values.stride + (begin + t) * kTileRows;
      multiply<kTileRows, N, true, true>(smaller(kTileRows, values.width - c), next - t, group, kTileRows,
                                         weights + t * kWidth, sums + c * kWidth);
    }
    t = next;
  }
}

// Stored rows that are read after this block, asked for a few at a time.
struct RowsAhead {
  const char* const* rows;
  int64_t count, bytes, next;
};

static RowsAhead list_ahead(const AttentionProblem& problem, const Sequence& sequence, int kv_head, int64_t begin,
                            int64_t end, const char** rows) {
  auto bytes_of = [](const Cache& cache, int channels) {
    return with_store(cache.element, [&](auto store) { return decltype(store)::bytes(channels); });
  };
  const int64_t count = larger(0, end - begin);
  list_rows(problem.key, problem.addressing, sequence.index, kv_head, begin, begin + count, rows);
  list_rows(problem.value, problem.addressing, sequence.index, kv_head, begin, begin + count, rows + count);
  const int64_t bytes = larger(bytes_of(problem.key, problem.head_size), bytes_of(problem.value, problem.v_head_size));
  return {rows, 2 * count, bytes, 0};
}

PAGELOOM_INLINE void ask_some(RowsAhead& ahead, int64_t some) {
  for (const int64_t end = smaller(ahead.next + some, ahead.count); ahead.next < end; ahead.next++) {
    const char* row = ahead.rows[ahead.next];
    if (!row) continue;
    for (int64_t offset = 0; offset < ahead.bytes; offset += 64) __builtin_prefetch(row + offset, 0, 2);
  }
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
    const FloatGroups values = float_groups(problem.value, problem.addressing, task.sequence.index, kv_head, block,
                                            block_end, problem.v_head_size, s.staging, s.values);
    RowsAhead ahead =
        list_ahead(problem, task.sequence, kv_head, block_end, smaller(block_end + kv_block, last), s.rows);
    const int64_t turns = s.panels * (kv_block / kTileRows), share = (ahead.count + turns - 1) / turns;
    for (int64_t panel = 0; panel < s.panels; panel++) {
      const float *begins = s.begins + panel * s.lanes, *ends = s.ends + panel * s.lanes;
      const int64_t begin = larger(block, static_cast<int64_t>(earliest(begins, s.lanes)));
      const int64_t end = smaller(block_end, static_cast<int64_t>(latest(ends, s.lanes)));
      if (begin >= end) continue;
      const int64_t count = end - begin;
      multiply<kTileRows, N, false, false>(count, keys.width, keys.data + (begin - block) * keys.stride, keys.stride,
                                           s.queries + panel * s.query_width * s.lanes, s.scores,
                                           [&] { ask_some(ahead, share); });
      if (transforms_logits(problem)) transform_panel(problem, task, kv_head, panel, begin, count, s);
      if (!keys.mapped) hide_unmapped(problem, task.sequence.index, begin, count, s.lanes, s.scores);
      const bool masked =
          static_cast<float>(begin) < latest(begins, s.lanes) || static_cast<float>(end) > earliest(ends, s.lanes);
      panel_softmax<N>(panel, begin, count, masked, s);
      add_values<N>(values, begin - block, count, problem.bias.data || !keys.mapped, s.scores,
                    s.sums + panel * s.value_width * s.lanes);
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
