// Arguments of a model's functions, checked before any rank starts to compute.
#ifndef MOE_CAPI_ARGUMENTS_H_
#define MOE_CAPI_ARGUMENTS_H_

#include "capi/moe.h"
#include "core/base/status.h"
#include "core/model/model.h"

namespace moe::capi {

// Tokens and labels within the vocabulary, sizes that memory can hold. Names batch.<field>, its place and value.
absl::StatusOr<Batch> ReadBatch(const moe_batch* batch, int64_t vocab_size, bool needs_labels);

absl::Status CheckGenerate(const int32_t* prompt, int64_t n, int64_t num_tokens, double temperature, const int32_t* tokens, int64_t vocab_size);

// Fills the caller's view of a piece of a parameter.
void DescribeParameter(const Param& param, const ParamPiece& piece, moe_parameter* out);

}  // namespace moe::capi
#endif  // MOE_CAPI_ARGUMENTS_H_
