// Embedding, output head and cross-entropy over a vocabulary that the ranks of a tensor-parallel group share by rows
// (arXiv 1909.08053): logits of all columns exist on no rank.
#ifndef MOE_CORE_MODEL_VOCABULARY_H_
#define MOE_CORE_MODEL_VOCABULARY_H_

#include <string>

#include "core/config/config.pb.h"
#include "core/model/token_layout.h"
#include "core/moe/parameter.h"

namespace moe {

// A matrix [V, D] of which this rank has rows begin .. begin + rows.
class VocabularyTable {
 public:
  VocabularyTable(const config::ModelConfig& c, const Parallel& ranks);
  // `counted`: Param::counted.
  absl::Status DeclareParams(ParamStore* store, const std::string& name, double stddev, bool counted);

  // y_TD [share, D] = rows of the tokens.
  absl::Status Embed(const ModuleContext& ctx, const TokenLayout& layout, Out y_TD);
  // Adds to the table's gradient.
  absl::Status EmbedBackward(const ModuleContext& ctx, const TokenLayout& layout, In dy_TD);

  // Sum of -log p(label) over the labels that are not negative, the same on all ranks of the tensor-parallel group. With
  // grad_scale given also d(grad_scale * sum) / dx in place of x_TD [share, D] and the table's gradient. In blocks of rows:
  // [T, V] is never stored whole.
  absl::StatusOr<double> Loss(const ModuleContext& ctx, const TokenLayout& layout, bool backward, double grad_scale, Out x_TD);
  // Logits of this rank's columns [n, rows] for `wanted` rows of the part; x_TD is the share.
  absl::Status Logits(const ModuleContext& ctx, const TokenLayout& layout, In x_TD, const std::vector<int32_t>& wanted, TensorView* logits);

  int64_t begin() const { return begin_; }
  int64_t rows() const { return rows_; }
  Param* param() const { return table_; }

 private:
  // Index in the table for each id, -1 outside of this rank's rows.
  std::vector<int32_t> Local(const std::vector<int32_t>& ids) const;
  // -log p of rows: from logits, which become their gradient; adds to *sum.
  absl::Status CrossEntropy(const ModuleContext& ctx, const int32_t* labels, bool backward, double grad_scale, Out logits, double* sum);

  Parallel ranks_;
  int64_t vocab_, d_model_, begin_, rows_, block_;
  Param* table_ = nullptr;
};

}  // namespace moe
#endif  // MOE_CORE_MODEL_VOCABULARY_H_
