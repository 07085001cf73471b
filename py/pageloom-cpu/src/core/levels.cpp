#include "core/levels.hpp"

#include <cstdio>
#include <stdexcept>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pageloom {

namespace scalar {
extern const LevelKernels kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const LevelKernels kernels;
}
namespace avx512 {
extern const LevelKernels kernels;
}
namespace avx512_vnni {
extern const LevelKernels kernels;
}
#ifdef PAGELOOM_HAS_AMX
namespace avx512_amx {
extern const LevelKernels kernels;
}
#endif
#elif defined(__aarch64__)
namespace neon {
extern const LevelKernels kernels;
}
#endif

namespace {

#if defined(__x86_64__)
struct Features {
  bool avx2 = false, fma = false, f16c = false, avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false;
  bool avx512vnni = false, amx_tile = false, amx_int8 = false, os_ymm = false, os_zmm = false, os_tiles = false;
};

Features features() {
  Features f;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  f.fma = c >> 12 & 1;
  f.f16c = c >> 29 & 1;
  if (c >> 27 & 1) {  // OSXSAVE: the kernel says which registers it keeps for a thread
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    f.os_ymm = (low & 0x06) == 0x06;
    f.os_zmm = (low & 0xe6) == 0xe6;
    f.os_tiles = (low & 0x60000) == 0x60000;
  }
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    f.avx2 = b >> 5 & 1;
    f.avx512f = b >> 16 & 1;
    f.avx512dq = b >> 17 & 1;
    f.avx512bw = b >> 30 & 1;
    f.avx512vl = b >> 31 & 1;
    f.avx512vnni = c >> 11 & 1;
    f.amx_tile = d >> 24 & 1;
    f.amx_int8 = d >> 25 & 1;
  }
  return f;
}

std::string missing(std::initializer_list<std::pair<const char*, bool>> needs) {
  std::string names;
  for (const auto& [name, present] : needs) {
    if (!present) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names.empty() ? "" : "this CPU or its kernel lacks " + names;
}
#endif

#if defined(PAGELOOM_HAS_AMX) && !defined(PAGELOOM_AMX_IN_LOOPS)
// The kernel keeps tiles only for a process that asked for them; using them without kills it.
bool tiles_permitted() {
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

void add(std::vector<Level>& levels, const char* name, const LevelKernels& kernels, std::string why) {
  levels.push_back({name, why.empty() ? &kernels : nullptr, std::move(why)});
}

std::vector<Level> detect() {
  std::vector<Level> levels;
  add(levels, "scalar", scalar::kernels, "");
#if defined(__x86_64__)
  const Features f = features();
  const std::string lacks_avx512 = missing({{"AVX-512 F", f.avx512f},
                                            {"AVX-512 BW", f.avx512bw},
                                            {"AVX-512 VL", f.avx512vl},
                                            {"AVX-512 DQ", f.avx512dq},
                                            {"the AVX-512 state", f.os_zmm}});
  add(levels, "avx2", avx2::kernels,
      missing({{"AVX2", f.avx2}, {"FMA", f.fma}, {"F16C", f.f16c}, {"the AVX state", f.os_ymm}}));
  add(levels, "avx512", avx512::kernels, lacks_avx512);
  const std::string lacks_vnni = lacks_avx512.empty() ? missing({{"AVX-512 VNNI", f.avx512vnni}}) : lacks_avx512;
  add(levels, "avx512_vnni", avx512_vnni::kernels, lacks_vnni);
#ifdef PAGELOOM_HAS_AMX
  std::string lacks_tiles = lacks_vnni;
#ifndef PAGELOOM_AMX_IN_LOOPS
  if (lacks_tiles.empty()) {
    lacks_tiles = missing({{"AMX-TILE", f.amx_tile}, {"AMX-INT8", f.amx_int8}, {"the tile state", f.os_tiles}});
  }
  if (lacks_tiles.empty() && !tiles_permitted()) lacks_tiles = "the kernel does not permit AMX tiles (arch_prctl)";
#endif
  add(levels, "avx512_amx", avx512_amx::kernels, lacks_tiles);
#else
  levels.push_back({"avx512_amx", nullptr, "the compiler that built pageloom-cpu knows no AMX"});
#endif
#elif defined(__aarch64__)
  add(levels, "neon", neon::kernels, "");
#endif
  return levels;
}

#ifdef __linux__
int64_t cache_size(int name) {
  const long size = sysconf(name);
  return size > 0 ? size : 0;
}
#endif

}  // namespace

const std::vector<Level>& all_levels() {
  static const std::vector<Level> levels = detect();
  return levels;
}

const Level& find_level(const std::string& name) {
  const std::vector<Level>& levels = all_levels();
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    if (name.empty() ? level->kernels != nullptr : level->name == name) {
      if (level->kernels) return *level;
      throw std::invalid_argument("level '" + name + "' cannot run here: " + level->unavailable);
    }
  }
  std::string known;
  for (const Level& level : levels) known += (known.empty() ? "" : ", ") + level.name;
  throw std::invalid_argument("level is '" + name + "'; this build has " + known);
}

CacheSizes cache_sizes() {
  CacheSizes sizes = {32 << 10, 512 << 10, 0};
#if defined(__linux__) && defined(_SC_LEVEL2_CACHE_SIZE)
  if (int64_t size = cache_size(_SC_LEVEL1_DCACHE_SIZE)) sizes.l1d = size;
  if (int64_t size = cache_size(_SC_LEVEL2_CACHE_SIZE)) sizes.l2 = size;
  sizes.l3 = cache_size(_SC_LEVEL3_CACHE_SIZE);
#endif
  return sizes;
}

}  // namespace pageloom
