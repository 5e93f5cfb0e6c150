// Time of the plan and of its proof against the number of ranks, for DeepSeek-V3's layers: up to 16 stages, expert parallelism
// over 50 ranks.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include "core/plan/check.h"

namespace moe {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Layout { int64_t ranks, pp, tp, ep; };

absl::Status Measure(const Layout& l, bool seeded) {
  config::Config c;
  c.mutable_model()->set_num_layers(61);
  c.mutable_model()->set_num_dense_layers(3);
  c.mutable_model()->set_num_global_experts(256);
  c.mutable_model()->set_top_k(8);
  c.mutable_model()->set_d_model(7168);
  c.mutable_model()->set_d_hidden(2048);
  c.mutable_model()->set_vocab_size(129280);
  c.mutable_train()->set_seq_len(4096);
  const double start = Seconds();
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Make(l.ranks, {l.tp, 1, l.ranks / l.pp / l.tp, l.pp, 1, l.ep}));
  MOE_ASSIGN_OR_RETURN(World w, MakeWorld(c, mesh, {{ScheduleKind::kOneFOneB, l.pp, 1, 4 * l.pp}, true, false}, 4096));
  const double made = Seconds();
  if (seeded) MOE_RETURN_IF_ERROR(SeedMistake(Mistake::kMissingMicroBatch, &w));
  MOE_ASSIGN_OR_RETURN(const Verdict v, CheckPrograms(w));
  const double end = Seconds();
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  std::printf("%8ld ranks%s  program %8.3f s  check %8.3f s  classes %6ld  operations %9ld  memory %6.0f MiB  %s\n", static_cast<long>(l.ranks), seeded ? " (one mistaken)" : "               ", made - start, end - made,
              static_cast<long>(v.classes), static_cast<long>(v.operations), use.ru_maxrss / 1024.0, v.free ? "free of deadlock" : "mistake found");
  return absl::OkStatus();
}

int Main() {
  for (bool seeded : {false, true})
    for (const Layout& l : {Layout{100, 4, 1, 25}, Layout{1000, 4, 2, 50}, Layout{10000, 8, 2, 50}, Layout{100000, 16, 2, 50}})
      if (const absl::Status s = Measure(l, seeded); !s.ok()) {
        std::fprintf(stderr, "%s\n", s.ToString().c_str());
        return 1;
      }
  return 0;
}

}  // namespace
}  // namespace moe

int main() { return moe::Main(); }
