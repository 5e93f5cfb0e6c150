// Time of the plan and of its proof against the number of ranks, for DeepSeek-V3's layers: up to 16 stages, expert parallelism
// over 50 ranks.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include "core/plan/check.h"

namespace moe {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Layout { int64_t ranks, pp, tp, cp, etp, ep; };

absl::Status Measure(const Layout& l, const Mistake* seeded) {
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
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Make(l.ranks, {l.tp, l.cp, l.ranks / l.pp / l.tp / l.cp, l.pp, l.etp, l.ep}));
  MOE_ASSIGN_OR_RETURN(World w, MakeWorld(c, mesh, {{ScheduleKind::kOneFOneB, l.pp, 1, 4 * l.pp}, true, false}, 4096));
  const double made = Seconds();
  if (seeded) MOE_RETURN_IF_ERROR(SeedMistake(*seeded, &w));
  MOE_ASSIGN_OR_RETURN(const Verdict v, CheckPrograms(w));
  const double end = Seconds();
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  std::printf("%8ld ranks  %-24s program %8.3f s  check %8.3f s  classes %6ld  operations %9ld  memory %6.0f MiB  %s\n", static_cast<long>(l.ranks), seeded ? Name(*seeded) : "", made - start, end - made,
              static_cast<long>(v.classes), static_cast<long>(v.operations), use.ru_maxrss / 1024.0, v.free ? "free of deadlock" : "mistake found");
  return absl::OkStatus();
}

absl::Status All() {
  const Layout layouts[] = {{100, 4, 1, 1, 1, 25}, {1000, 4, 2, 1, 1, 50}, {10000, 8, 2, 1, 1, 50}, {100000, 16, 2, 1, 1, 50}};
  for (const Layout& l : layouts) MOE_RETURN_IF_ERROR(Measure(l, nullptr));
  // One rank that deviates splits the classes, most where the groups of the two maps do not nest.
  for (Mistake m : kMistakes) {
    MOE_RETURN_IF_ERROR(Measure(layouts[3], &m));
    MOE_RETURN_IF_ERROR(Measure({100000, 16, 5, 5, 2, 125}, &m));
  }
  return absl::OkStatus();
}

int Main() {
  const absl::Status s = All();
  if (!s.ok()) std::fprintf(stderr, "%s\n", s.ToString().c_str());
  return s.ok() ? 0 : 1;
}

}  // namespace
}  // namespace moe

int main() { return moe::Main(); }
