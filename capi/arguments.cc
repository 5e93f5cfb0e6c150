#include "capi/arguments.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "capi/boundary.h"

namespace moe::capi {
namespace {

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();   // positions and row indices are int32

}  // namespace

absl::StatusOr<Batch> ReadBatch(const moe_batch* batch, int64_t vocab, bool needs_labels) {
  MOE_ASSIGN_OR_RETURN(const moe_batch b, ReadStruct("batch", batch));
  if (b.batch < 0) return InvalidArgument("batch.batch is ", b.batch, ", must be >= 0");
  if (b.seq < 1) return InvalidArgument("batch.seq is ", b.seq, ", must be at least 1");
  if (b.batch > kMostTokens / b.seq) return InvalidArgument("batch.batch ", b.batch, " x batch.seq ", b.seq, " is more than ", kMostTokens, " tokens; give fewer sequences");
  if (b.first_sample < 0 || b.first_sample > std::numeric_limits<int64_t>::max() / b.seq / 2) return InvalidArgument("batch.first_sample is ", b.first_sample, ", must be >= 0 and not overflow in tokens");
  if (b.batch > 0 && b.ids == nullptr) return NullArgument("batch.ids");
  if (b.batch > 0 && needs_labels && b.labels == nullptr) return NullArgument("batch.labels");
  for (int64_t i = 0; i < b.batch * b.seq; ++i) {
    const auto outside = [&](const char* name, int32_t value) {
      return InvalidArgument("batch.", name, "[", i / b.seq, ", ", i % b.seq, "] is ", value, ", model.vocab_size is ", vocab);
    };
    if (b.ids[i] < 0 || b.ids[i] >= vocab) return outside("ids", b.ids[i]);
    if (needs_labels && b.labels[i] >= vocab) return outside("labels", b.labels[i]);
  }
  Batch out;
  out.ids = b.ids;
  out.labels = b.labels;
  out.batch = b.batch;
  out.seq = b.seq;
  out.first_sample = b.first_sample;
  return out;
}

absl::Status CheckGenerate(const int32_t* prompt, int64_t n, int64_t num_tokens, double temperature, const int32_t* tokens, int64_t vocab) {
  if (prompt == nullptr) return NullArgument("prompt");
  if (n < 1 || n > kMostTokens) return InvalidArgument("n is ", n, ", the prompt needs at least one token and at most ", kMostTokens);
  if (num_tokens < 0 || num_tokens > kMostTokens) return InvalidArgument("num_tokens is ", num_tokens, ", must be 0 to ", kMostTokens);
  if (tokens == nullptr && num_tokens > 0) return NullArgument("tokens");
  if (!(temperature >= 0) || std::isinf(temperature)) return InvalidArgument("temperature is ", temperature, ", must be a number >= 0");
  for (int64_t i = 0; i < n; ++i)
    if (prompt[i] < 0 || prompt[i] >= vocab) return InvalidArgument("prompt[", i, "] is ", prompt[i], ", model.vocab_size is ", vocab);
  return absl::OkStatus();
}

void DescribeParameter(const Param& param, const ParamPiece& piece, moe_parameter* out) {
  moe_parameter p{};
  p.name = piece.name.c_str();
  p.is_expert = param.kind == ParamKind::kExpert ? 1 : 0;
  p.dtype = static_cast<int32_t>(param.value.dtype());
  p.ndim = static_cast<int32_t>(std::min<size_t>(piece.shape.size(), 4));
  p.decay = param.decay ? 1 : 0;
  for (int32_t i = 0; i < p.ndim; ++i) {
    p.shape[i] = piece.shape[i];
    p.global_shape[i] = piece.global_shape[i];
    p.begin[i] = piece.begin[i];
  }
  p.value = PieceView(param.value, piece).data();
  p.grad = PieceView(param.grad, piece).data();
  WriteStruct(p, out);
}

}  // namespace moe::capi
