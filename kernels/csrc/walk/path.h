// One path through the candidate lattice: of every candidate before, which one follows it; then the pointers.
//
// law[c] = exp((score[c] - top) / T) / sum, sums in the order of the list; the choice is argmax of law / exponential(token), or the
// first of the largest scores where the walk is greedy.
#pragma once
#include "noise.h"

struct Path {
  const float* scores;        // [rows][width before][width]
  const int64_t* candidates;  // [rows][width], rows `stride` apart
  const int64_t *seed, *start;
  const double* temperature;
  int64_t* tokens;  // [rows]
  double* q;        // [rows][width]: the law that each token was drawn from
  int64_t stride;
  int rows, width, greedy;
};

constexpr int kMostEdges = 4096, kMostPlaces = 512;  // rows x width x width, rows x width

struct PathScratch {
  double law[kMostEdges], wait[kMostPlaces];
  float top[kMostPlaces];
  int choice[kMostPlaces], before[kMostPlaces];
};

ANYWHERE void walk(const Path& p, PathScratch& s) {
  const int width = p.width, places = p.rows * width;
  team::each(places, [&](int place) {
    const float* scores = p.scores + static_cast<int64_t>(place) * width;
    int first = 0;
    for (int c = 1; c < width; c++)
      if (team::above(scores[c], scores[first])) first = c;
    s.top[place] = scores[first], s.choice[place] = first;
    if (!p.greedy) s.wait[place] = noise::exponential(noise::kDraft, *p.seed, *p.start + 1 + place / width, p.candidates[place / width * p.stride + place % width]);
  });
  if (!p.greedy) {
    team::each(places * width, [&](int edge) {
      s.law[edge] = exp((static_cast<double>(p.scores[edge]) - static_cast<double>(s.top[edge / width])) / *p.temperature);
    });
    team::each(places, [&](int place) {
      double *law = s.law + place * width, sum = 0;
      const double* wait = s.wait + place / width * width;
      for (int c = 0; c < width; c++) sum += law[c];
      int chosen = 0;
      double best = 0;  // a race is not below, so where all are 0 the first of them
      for (int c = 0; c < width; c++) {
        law[c] /= sum;
        const double race = law[c] / wait[c];
        if (team::above(race, best)) best = race, chosen = c;
      }
      s.choice[place] = chosen;
    });
  }
  team::once([&] {
    int place = 0;
    for (int row = 0; row < p.rows; row++) {
      s.before[row] = place;
      place = s.choice[row * width + place];
      p.tokens[row] = p.candidates[row * p.stride + place];
    }
  });
  team::each(places, [&](int i) {
    const int place = i / width * width + s.before[i / width], c = i % width;
    p.q[i] = p.greedy ? c == s.choice[place] : s.law[place * width + c];
  });
}
