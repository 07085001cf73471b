// One attention call: resolves its lengths, plans, and runs the tasks on the pool.
#pragma once

#include "core/levels.hpp"
#include "core/plan.hpp"
#include "core/problem.hpp"
#include "core/sequences.hpp"

namespace pageloom {

struct AttentionCall {
  AttentionProblem problem;
  SequenceSource source;
  const Level* level = nullptr;
  Path path = Path::choose;
  int threads = 0;  // the most that it may use; 0 is the pool's

  void run() const;
  Plan plan() const;
};

struct AppendCall {
  AppendProblem problem;
  SequenceSource source;
  const Level* level = nullptr;
  int threads = 0;

  void run() const;
};

}  // namespace pageloom
