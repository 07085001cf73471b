// Blocks of stored rows as floats, for the kernels that work on many query rows at once.
#pragma once

template <class Store>
static void convert_rows(const char* data, int64_t stride, int64_t count, int channels, float* out, int64_t width) {
  const int whole = channels / kUnit, rest = channels % kUnit;
  for (int64_t r = 0; r < count; r++, data += stride, out += width) {
    Vec a, b;
    for (int unit = 0; unit < whole; unit++) {
      Store::load_unit(data + unit * Store::bytes(kUnit), a, b);
      store(out + unit * kUnit, a);
      store(out + unit * kUnit + kLanes, b);
    }
    if (rest) {
      load_unit_first<Store>(data + whole * Store::bytes(kUnit), rest, a, b);
      store(out + whole * kUnit, a);
      store(out + whole * kUnit + kLanes, b);
    }
  }
}

// Float rows of a block of keys: `stride` floats apart, of which `width` count; whether all of them are mapped.
struct FloatRows {
  const float* data;
  int64_t stride, width;
  bool mapped;
};

// Keys [begin, end) of one head as floats. Those that are floats already are copied too: one long read is faster than
// what the products would do to memory. Unmapped rows become 0.
static FloatRows float_rows(const Cache& cache, const Addressing& where, int64_t sequence, int head, int64_t begin,
                            int64_t end, int channels, float* buffer) {
  const int64_t width = padded(channels);
  bool mapped = true;
  for (int64_t t = begin; t < end;) {
    const Run run = run_at(cache, where, sequence, head, t, end);
    float* out = buffer + (t - begin) * width;
    if (run.data) {
      with_store(cache.element, [&](auto store) {
        convert_rows<decltype(store)>(run.data, cache.row_stride, run.count, channels, out, width);
      });
    } else {
      mapped = false;
      for (int64_t i = 0; i < run.count * width; i++) out[i] = 0;
    }
    t += run.count;
  }
  return {buffer, width, width, mapped};
}

PAGELOOM_INLINE int64_t groups_of(int64_t channels) { return (channels + kTileRows - 1) / kTileRows; }

// Float rows of a block of keys in groups of channels, as a product takes them: [group][key][kTileRows], with groups
// `stride` floats apart.
struct FloatGroups {
  const float* data;
  int64_t stride, width;
};

// Keys [begin, end) of one head as groups of floats, by way of `staging` for kLanes rows. Unmapped rows become 0.
static FloatGroups float_groups(const Cache& cache, const Addressing& where, int64_t sequence, int head, int64_t begin,
                                int64_t end, int channels, float* staging, float* buffer) {
  const int64_t width = padded(channels), stride = (end - begin) * kTileRows;
  for (int64_t t = begin; t < end; t += kLanes) {
    const int64_t count = smaller(kLanes, end - t);
    float_rows(cache, where, sequence, head, t, t + count, channels, staging);
    for (int64_t c = 0; c < width; c += kTileRows) {
      float* group = buffer + c / kTileRows * stride + (t - begin) * kTileRows;
      for (int64_t r = 0; r < count; r++) {
        for (int64_t i = 0; i < smaller(kTileRows, width - c); i += kLanes) {
          const int n = static_cast<int>(smaller(kLanes, smaller(kTileRows, width - c) - i));
          store_first(group + r * kTileRows + i, load_first(staging + r * width + c + i, n), n);
        }
      }
    }
  }
  return {buffer, stride, width};
}
