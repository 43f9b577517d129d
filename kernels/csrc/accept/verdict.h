// Rejection sampling of one drafted chain from each row's best logits: the laws, the accepted drafts, the token behind them.
//
// Per row, on its sorted support: weight[i] = exp((value - top) / T) where top-k and min-p keep it; p = weight / sum; top-p keeps the
// shortest prefix whose mass reaches it, and p is divided by what is kept. Draft i is accepted while u q(draft) < p(draft). The token
// races by relu(p - q) of the first rejected row, by p where nothing of it remains or nothing was rejected. Sums go up the lists.
#pragma once
#include "noise.h"

struct Verdict {
  const float* values;     // [rows][support], sorted
  const int64_t* ids;      // [rows][support]
  const float* largest;    // [rows] of the whole vocabulary
  const int64_t* tokens;   // [rows - 1] drafts
  const int64_t* draft_ids;  // [rows - 1][width], rows `stride` apart
  const double* q;           // [rows - 1][width]
  const int64_t* bonus;      // token, position, seed
  int64_t* packed;           // broken, tie cut, accepted, token, drafts
  double temperature, top_p, min_p;
  int64_t stride;
  int rows, support, width, top_k, greedy, complete;
};

constexpr int kMostRows = 32, kMostSupport = 65, kMostEntries = 1088;

struct VerdictScratch {
  double p[kMostEntries], race[kMostSupport];
  int tie[kMostRows], passed[kMostRows], accepted;
};

ANYWHERE double mass(const int64_t* ids, const double* p, int count, int64_t token) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += ids[i] == token ? p[i] : 0.0;
  return sum;
}

// What a row's cuts leave of its weights, as probabilities.
ANYWHERE void normalise(const Verdict& v, double* p) {
  double sum = 0;
  for (int i = 0; i < v.support; i++) sum += p[i];
  for (int i = 0; i < v.support; i++) p[i] /= sum;
  if (v.top_p >= 1) return;
  double before = 0, kept = 0;
  for (int i = 0; i < v.support; i++) {
    const double upto = before + p[i];
    if (!(upto - p[i] < v.top_p)) p[i] = 0;
    before = upto, kept += p[i];
  }
  for (int i = 0; i < v.support; i++) p[i] /= kept;
}

ANYWHERE void judge(const Verdict& v, VerdictScratch& s) {
  const int support = v.support, drafts = v.rows - 1;
  const bool cuts = !v.greedy && v.top_k > 0 && v.top_k < support;
  const int64_t position = v.bonus[1], seed = v.bonus[2];
  team::each(v.rows * support, [&](int i) {
    const float *row = v.values + i / support * support, x = v.values[i];
    if (v.greedy) {
      s.p[i] = i % support == 0;
      return;
    }
    const double weight = x == row[0] ? 1.0 : exp((static_cast<double>(x) - static_cast<double>(row[0])) / v.temperature);
    s.p[i] = (!cuts || x >= row[v.top_k - 1]) && weight >= v.min_p ? weight : 0.0;
  });
  team::each(v.rows, [&](int r) {
    if (!v.greedy) normalise(v, s.p + r * support);
    const float* row = v.values + r * support;
    s.tie[r] = cuts && !v.complete && row[support - 1] == row[v.top_k - 1];
  });
  team::each(drafts, [&](int i) {
    const double p = mass(v.ids + i * support, s.p + i * support, support, v.tokens[i]);
    const double q = mass(v.draft_ids + i * v.stride, v.q + i * v.width, v.width, v.tokens[i]);
    s.passed[i] = noise::uniform(noise::kAccept, seed, position + 1 + i) * q < p;
  });
  team::once([&] {
    s.accepted = 0;
    while (s.accepted < drafts && s.passed[s.accepted]) s.accepted++;
  });
  const int row = s.accepted;
  const double* p = s.p + row * support;
  const int64_t* ids = v.ids + row * support;
  team::each(support, [&](int i) {
    const double overlap = row < drafts ? mass(v.draft_ids + row * v.stride, v.q + row * v.width, v.width, ids[i]) : 0.0;
    s.race[i] = p[i] - overlap > 0 ? p[i] - overlap : 0.0;
  });
  bool remains = false;
  for (int i = 0; i < support; i++) remains |= s.race[i] > 0;
  team::meet();
  team::each(support, [&](int i) {
    s.race[i] = (remains ? s.race[i] : p[i]) / noise::exponential(noise::kTarget, seed, position + 1 + row, ids[i]);
  });
  team::once([&] {
    int chosen = 0, broken = 0, tie = 0;
    for (int i = 1; i < support; i++)
      if (team::above(s.race[i], s.race[chosen])) chosen = i;
    for (int r = 0; r < v.rows; r++) broken |= !(v.largest[r] > -INFINITY), tie |= s.tie[r];
    v.packed[0] = broken, v.packed[1] = tie, v.packed[2] = row, v.packed[3] = ids[chosen];
  });
  team::each(drafts, [&](int i) { v.packed[4 + i] = v.tokens[i]; });
}
