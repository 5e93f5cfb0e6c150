// A language model with its optimizer, as one rank holds it: what the C API's moe_model is.
//
// The numbers do not depend on how ranks share the work: the loss is the mean over all labels of the global batch,
// gradients are sums over ranks of that one mean's derivative, the balancing losses are those of the whole batch.
// A step is the program of this rank's pipeline stage (core/plan/program.h), executed op by op.
#ifndef MOE_CORE_MODEL_MODEL_H_
#define MOE_CORE_MODEL_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.pb.h"
#include "core/model/stage_runner.h"
#include "core/moe/modules.h"
#include "core/train/optimizer.h"

namespace moe {

// What a model works with; all outlive it.
struct ModelContext {
  Device* device = nullptr;
  const ModuleFactory* modules = nullptr;
  Communicator* world = nullptr;   // all ranks; null: this rank alone
  Parallel ranks;                  // its groups
};

struct StepStats {
  int64_t step = 0;
  double loss = 0, aux_loss = 0, z_loss = 0, total_loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0, dropped_routes = 0;
};

class Model {
 public:
  // Collective. `config` is validated (core/config, core/plan) and agrees with the groups.
  static absl::StatusOr<std::unique_ptr<Model>> Make(const config::Config& config, const ModelContext& context);

  // Batches below are the sequences of this rank's data-parallel coordinate: the same on all ranks that share it.
  // Collective over the ranks. Sets gradients (summed over the ranks) and everything in stats but grad_norm and lr.
  absl::Status ForwardBackward(const Batch& batch, StepStats* stats);
  // Collective over the ranks that hold copies of this rank's parameters of a kind: sums their gradients. ForwardBackward does it
  // for all kinds.
  absl::Status ReduceGradients(ParamKind kind);
  // Collective. Clips, updates, advances the step. Sets step, grad_norm and lr.
  absl::Status OptimizerStep(StepStats* stats);
  // Collective. Sums over all ranks.
  absl::Status Evaluate(const Batch& batch, double* nll_sum, int64_t* num_labels);
  // Collective. logits: host [batch, seq, vocab] of the model's dtype.
  absl::Status Logits(const Batch& batch, void* logits);
  // Collective; the same arguments on all ranks, the same tokens on all ranks.
  absl::Status Generate(absl::Span<const int32_t> prompt, int64_t num_tokens, double temperature, uint64_t seed, int32_t* tokens);
  // Collective. See moe_model_save / moe_model_load.
  absl::Status Save(const std::string& path, const std::string& user_json);
  absl::Status Load(const std::string& path, bool weights_only, std::string* user_json);

  // Collective. JSON: see moe_model_describe.
  absl::StatusOr<std::string> Describe() const;
  int64_t step() const { return optimizer_->step(); }
  int64_t dp_rank() const { return context_.ranks.index(GroupKind::kDp); }
  int64_t dp_size() const { return context_.ranks.size(GroupKind::kDp); }
  int64_t num_moe_layers() const { return config_.model().num_layers() - config_.model().num_dense_layers(); }
  // [num_moe_layers, num_global_experts] of the last ForwardBackward, whole batch, before drops.
  const std::vector<int64_t>& expert_count() const { return sums_.count; }
  // All pieces of this rank's parameters, in order of declaration: (parameter, piece).
  const std::vector<std::pair<Param*, const ParamPiece*>>& pieces() const { return pieces_; }
  const config::Config& config() const { return config_; }
  ParamStore* params() { return store_.get(); }

 private:
  Model(const config::Config& config, const ModelContext& context) : config_(config), context_(context) {}
  // What all ranks know of a batch after they have met.
  struct Agreed { int64_t labels = 0, tokens = 0, micro_batch = 1, micro_batches = 1; };
  absl::Status CheckBatch(const Batch& b, bool needs_labels) const;
  // Collective: kBegin. A bad batch on one rank is that error on all.
  absl::StatusOr<Agreed> Begin(const Batch& b, bool needs_labels);
  StepWork WorkOf(const Batch& b, const Agreed& agreed) const;
  // Programs of this rank's stage, made when first asked for.
  absl::StatusOr<const StageProgram*> StepProgramOf(int64_t micro_batches);
  absl::StatusOr<const StageProgram*> ForwardProgramOf(int64_t micro_batches);
  absl::Status RunForward(StepWork* work);
  // One op of a step up to its metrics.
  absl::Status Execute(const Op& op, const Agreed& agreed, StepWork* work);
  absl::Status ReduceRouting(const Agreed& agreed, StepWork* work);
  absl::Status ReduceTied();
  // Sums over the ranks that split the batch, then over the stages.
  absl::Status SumOverBatch(double* values, int64_t n);
  static GroupKind CopiesOf(ParamKind kind);   // the ranks that hold the same parameters of a kind
  bool Owns(ParamKind kind) const { return context_.ranks.index(CopiesOf(kind)) == 0; }
  // Host logits of all positions (`last_only` false), or of the last one of each sequence: [batch, seq or 1, vocab], on every rank
  // that shares the batch.
  absl::Status HostLogits(const Batch& b, bool last_only, std::vector<char>* out);
  bool NeedsRoutingSums() const;

  config::Config config_;
  ModelContext context_;
  std::unique_ptr<ParamStore> store_;
  std::vector<std::unique_ptr<StageChunk>> chunks_;
  std::unique_ptr<RotaryCache> rotary_;
  std::unique_ptr<StageRunner> runner_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Arena> arena_;   // of a step, besides what micro-batches have
  std::vector<std::pair<Param*, const ParamPiece*>> pieces_;
  StepShape shape_;
  std::map<int64_t, StageProgram> step_programs_, forward_programs_;   // by the number of micro-batches
  RoutingSums sums_;
  RoutingLosses losses_;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_MODEL_H_
