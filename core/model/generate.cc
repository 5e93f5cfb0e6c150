// Sampling text from the model. All ranks take part in every forward pass (the experts are spread over them), but only those of
// the first data-parallel coordinate hold the tokens; they tell the others what they drew.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/model/model.h"

namespace moe {
namespace {

// Draws from softmax(logits / temperature); temperature 0: the largest, ties to the lower id.
template <typename T>
int32_t Draw(const std::vector<T>& logits, double temperature, uint64_t key, int64_t index) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return static_cast<int32_t>(largest - logits.begin());
  std::vector<double> cumulative(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp((static_cast<double>(logits[i]) - static_cast<double>(*largest)) / temperature);
    cumulative[i] = sum;
  }
  const double u = RandomUniform(key, static_cast<uint64_t>(index)) * sum;
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), u);
  return static_cast<int32_t>(std::min<int64_t>(at - cumulative.begin(), static_cast<int64_t>(logits.size()) - 1));
}

template <typename T>
std::vector<T> Values(const std::vector<char>& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

absl::Status Model::Generate(absl::Span<const int32_t> prompt, int64_t num_tokens, double temperature, uint64_t seed, int32_t* tokens) {
  if (prompt.empty()) return InvalidArgument("generate: the prompt is empty; give at least one token");
  if (num_tokens < 0) return InvalidArgument("generate: num_tokens is ", num_tokens, ", must be >= 0");
  if (!(temperature >= 0) || !std::isfinite(temperature)) return InvalidArgument("generate: temperature is ", temperature, ", must be a number >= 0");
  const int64_t vocab = config_.model().vocab_size(), window = config_.train().seq_len();
  for (int32_t id : prompt)
    if (id < 0 || id >= vocab) return InvalidArgument("generate: the prompt holds token ", id, ", outside model.vocab_size ", vocab);
  const bool draws = dp_rank() == 0;
  const uint64_t key = StreamKey(seed, "generate");
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  const bool wide = store_->dtype() == DType::kF64;
  for (int64_t i = 0; i < num_tokens; ++i) {
    Batch b;
    b.seq = std::min<int64_t>(static_cast<int64_t>(text.size()), window);
    b.ids = text.data() + text.size() - b.seq;
    b.batch = draws ? 1 : 0;
    std::vector<char> logits;
    MOE_RETURN_IF_ERROR(HostLogits(b, true, &logits));
    int32_t next = 0;
    if (draws) next = wide ? Draw(Values<double>(logits), temperature, key, i) : Draw(Values<float>(logits), temperature, key, i);
    if (Communicator* dp = context_.ranks.group(GroupKind::kDp)) MOE_RETURN_IF_ERROR(Broadcast(dp->For("next token"), &next, sizeof(next), 0));
    text.push_back(next);
    tokens[i] = next;
  }
  return absl::OkStatus();
}

}  // namespace moe
