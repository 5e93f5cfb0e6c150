// A language model with its optimizer, as one rank holds it: what the C API's moe_model is.
//
// The numbers do not depend on how ranks share the work: the loss is the mean over all labels of the global batch,
// gradients are sums over ranks of that one mean's derivative, the balancing losses are those of the whole batch.
#ifndef MOE_CORE_MODEL_MODEL_H_
#define MOE_CORE_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/config/config.pb.h"
#include "core/model/transformer.h"
#include "core/moe/modules.h"
#include "core/train/optimizer.h"

namespace moe {

// What a model works with; all outlive it. A null communicator means "this rank alone".
struct ModelContext {
  Device* device = nullptr;
  const ModuleFactory* modules = nullptr;
  Communicator* world = nullptr;   // all ranks: checkpoints
  Communicator* batch = nullptr;   // ranks that split the batch (dp, cp): dense gradients, losses
  Communicator* ep = nullptr;      // ranks that share the experts of a layer
  Communicator* edp = nullptr;     // copies of the same experts: expert gradients
  int64_t dp_rank = 0, dp_size = 1;
};

// Sequences of this rank: ids and labels [batch, seq], labels[b,s] = token after ids[b,s], negative = ignored.
struct Batch {
  const int32_t* ids = nullptr;
  const int32_t* labels = nullptr;
  int64_t batch = 0, seq = 0;
  int64_t first_sample = 0;        // global index of the first sequence
};

struct StepStats {
  int64_t step = 0;
  double loss = 0, aux_loss = 0, z_loss = 0, total_loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0, dropped_routes = 0;
};

class Model {
 public:
  // Collective. `config` is validated (core/config); ep, edp and batch are sizes that config and world agree on.
  static absl::StatusOr<std::unique_ptr<Model>> Make(const config::Config& config, const ModelContext& context);

  // Collective over the ranks. Sets gradients (summed over the ranks) and everything in stats but grad_norm and lr.
  absl::Status ForwardBackward(const Batch& batch, StepStats* stats);
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

  // Collective over the expert-parallel group. JSON: see moe_model_describe.
  absl::StatusOr<std::string> Describe() const;
  int64_t step() const { return optimizer_->step(); }
  int64_t dp_rank() const { return context_.dp_rank; }
  int64_t dp_size() const { return context_.dp_size; }
  int64_t num_moe_layers() const { return transformer_->num_moe_layers(); }
  // [num_moe_layers, num_global_experts] of the last ForwardBackward, whole batch, before drops.
  const std::vector<int64_t>& expert_count() const { return sums_.count; }
  // All pieces of all parameters, in order of declaration: (parameter, piece).
  const std::vector<std::pair<Param*, const ParamPiece*>>& pieces() const { return pieces_; }
  const config::Config& config() const { return config_; }
  ParamStore* params() { return store_.get(); }

 private:
  Model(const config::Config& config, const ModelContext& context) : config_(config), context_(context) {}
  absl::Status CheckBatch(const Batch& b, bool needs_labels) const;
  // Micro-batches of all ranks: every rank runs as many as the rank with most.
  absl::StatusOr<int64_t> NumMicroBatches(const Batch& b) const;
  Batch MicroBatch(const Batch& b, int64_t index) const;

  config::Config config_;
  ModelContext context_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::pair<Param*, const ParamPiece*>> pieces_;
  RoutingSums sums_;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_MODEL_H_
