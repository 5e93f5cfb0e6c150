// How many parameters a model has, and how many of them a rank of a pipeline stage holds, by the kind that decides who reduces
// their gradients (core/moe/parameter.h). Pure arithmetic on the configuration: no rank, no memory.
//
// Totals agree with the published ones of the models in trainer/configs to 1%. Left out, because they are less than that: norms
// on queries and keys, and biases on routers.
#ifndef MOE_CORE_PLAN_REPORT_PARAMETERS_H_
#define MOE_CORE_PLAN_REPORT_PARAMETERS_H_

#include <cstdint>

#include "core/config/config.pb.h"
#include "core/plan/schedule.h"
#include "core/topology/mesh.h"

namespace moe {

struct ParameterCounts {
  int64_t dense = 0;        // attention, dense feed-forward, shared experts, vocabulary: cut by mesh.tp
  int64_t replicated = 0;   // norms, routers: whole on every rank of the stage
  int64_t expert = 0;       // routed experts: cut by mesh.ep and mesh.etp
  int64_t total() const { return dense + replicated + expert; }
  ParameterCounts& operator+=(const ParameterCounts& o) {
    dense += o.dense;
    replicated += o.replicated;
    expert += o.expert;
    return *this;
  }
};

// One layer's matrices, whole. `latent` is the part of attention's that every tensor-parallel rank holds (mla: projections down
// to the compressed queries and keys).
struct LayerParameters {
  int64_t attention = 0, latent = 0;
  int64_t dense_ffn = 0;      // a dense layer's, or the shared experts'
  int64_t one_expert = 0;     // a routed expert's (0: dense layer)
  int64_t one_expert_whole_bias = 0;   // of which every rank of an etp group holds all: the bias behind the second matrix
  int64_t router = 0, norms = 0;
};
LayerParameters CountLayer(const config::Config& c, bool moe_layer);
bool IsMoeLayer(const config::Config& c, int64_t layer);

struct ModelParameters {
  ParameterCounts whole;            // each element once
  int64_t active_per_token = 0;     // with top_k routed experts of every MoE layer, embedding and head included
  int64_t routed_experts = 0;       // of all MoE layers: num_global_experts x MoE layers
};
ModelParameters CountModel(const config::Config& c);

// What the ranks of a stage hold that have the largest share (the first of their groups). The last of several stages holds a
// copy of a tied embedding as its head.
ParameterCounts CountRank(const config::Config& c, const Mesh& mesh, const std::vector<Chunk>& chunks);
// Of one MoE layer, on the rank of the expert-parallel group that has most.
int64_t ExpertsPerRank(const config::Config& c, const Mesh& mesh);

// Size of one attention head, and widths of all query heads and of all key/value rows that attention moves.
int64_t QueryWidth(const config::ModelConfig& m);
int64_t ValueWidth(const config::ModelConfig& m);      // of what attention gives to its output matrix
int64_t KeyValueWidth(const config::ModelConfig& m);   // keys and values of one token, as context parallelism exchanges them
int64_t DenseWidth(const config::ModelConfig& m);      // inner width of a dense layer
int64_t ElementBytes(const config::ModelConfig& m);

}  // namespace moe
#endif  // MOE_CORE_PLAN_REPORT_PARAMETERS_H_
