// Random numbers by key, as kernels/noise.py makes them: SplitMix64's finaliser once per part of the key.
#pragma once
#include "team.h"

namespace noise {

constexpr uint64_t kDraft = 0x243F6A8885A308D3u, kAccept = 0x13198A2E03707344u, kTarget = 0x1F83D9ABFB41BD6Bu;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

ANYWHERE uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}
ANYWHERE uint64_t at(uint64_t stream, int64_t seed, int64_t position) {
  return mix(mix(static_cast<uint64_t>(seed) + stream) + static_cast<uint64_t>(position) * kGolden);
}
ANYWHERE double unit(uint64_t state) { return (static_cast<double>(state >> 11) + 0.5) * 0x1p-53; }
// In (0, 1).
ANYWHERE double uniform(uint64_t stream, int64_t seed, int64_t position) { return unit(at(stream, seed, position)); }
ANYWHERE double exponential(uint64_t stream, int64_t seed, int64_t position, int64_t token) {
  return -log(unit(mix(at(stream, seed, position) + (static_cast<uint64_t>(token) + 1) * kGolden)));
}

}  // namespace noise
