// What follows from an outcome: the next bonus, the selector, and the kept rows of context in the drafter's rings.
//
// An outcome that does not hold (a flag is set) keeps no row, and the selector and the bonus stay. One block a row of K or V.
#pragma once
#include "team.h"

constexpr int kMostLayers = 16;

struct Commit {
  const int64_t *packed, *bonus;
  int64_t* next;
  int32_t* selector;
  int64_t* length;       // of the rings, null where there are none
  const uint8_t* rows;   // [layers][K, V][count][row_bytes]
  uint8_t* ring[2 * kMostLayers];
  int64_t slots[kMostLayers];
  int layers, count, row_bytes;
};

struct Chunk {  // what a thread copies at once
  uint64_t low, high;
};

ANYWHERE void store(const Commit& o, int block) {
  const bool sound = !o.packed[0] && !o.packed[1];
  const int64_t keep = sound ? o.packed[2] + 1 : 0, position = o.bonus[1];
  if (block == 0 && team::rank() == 0) {
    if (sound) *o.selector = static_cast<int32_t>(keep);
    if (o.length) *o.length += keep;
    o.next[0] = sound ? o.packed[3] : o.bonus[0], o.next[1] = position + keep, o.next[2] = o.bonus[2];
  }
  if (!o.layers || block % o.count >= keep) return;
  const int half = block / o.count;
  const int64_t slot = (position + block % o.count) % o.slots[half / 2];
  const Chunk* from = reinterpret_cast<const Chunk*>(o.rows + static_cast<int64_t>(block) * o.row_bytes);
  Chunk* to = reinterpret_cast<Chunk*>(o.ring[half] + slot * o.row_bytes);
  for (int i = team::rank(); i < o.row_bytes / 16; i += team::size()) to[i] = from[i];
}

inline Commit commit_of(const int64_t* packed, const int64_t* bonus, int64_t* next, int32_t* selector, int64_t* length, const void* rows,
                        void* const* rings, const int64_t* slots, int layers, int count, int row_bytes) {
  Commit o{packed, bonus, next, selector, length, static_cast<const uint8_t*>(rows), {}, {}, layers, count, row_bytes};
  for (int i = 0; i < 2 * layers; i++) o.ring[i] = static_cast<uint8_t*>(rings[i]);
  for (int i = 0; i < layers; i++) o.slots[i] = slots[i];
  return o;
}
inline int blocks_of(const Commit& o) { return o.layers ? 2 * o.layers * o.count : 1; }
