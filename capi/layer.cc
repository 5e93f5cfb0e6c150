#include <algorithm>
#include <cmath>

#include "capi/arguments.h"
#include "capi/collective.h"
#include "capi/layer_state.h"

using moe::capi::Call;
using moe::capi::NullArgument;
using moe::capi::Several;

struct moe_layer final : moe::capi::Handle {
  using Handle::Handle;
  std::unique_ptr<moe::capi::LayerState> layer;
};

namespace {

// What every rank tells the others before a forward: whether its arguments are good, and how many tokens it has.
absl::Status MeetWithTokens(moe::Communicator* group, const absl::Status& mine, int64_t tokens, int64_t* first_token) {
  *first_token = 0;
  if (group == nullptr) return mine;
  struct Card { int64_t bad, tokens; };
  const Card card{mine.ok() ? 0 : 1, tokens};
  std::vector<Card> all(group->size());
  MOE_RETURN_IF_ERROR(moe::AllGather(group->For("layer"), &card, sizeof(card), all.data()));
  if (std::any_of(all.begin(), all.end(), [](const Card& c) { return c.bad != 0; })) return moe::capi::Meet(group, mine, "arguments", 0);
  for (int r = 0; r < group->rank(); ++r) *first_token += all[r].tokens;
  return absl::OkStatus();
}

absl::Status CheckForward(const void* x, int64_t tokens, const void* y, const moe_layer_stats* stats) {
  constexpr int64_t most = int64_t{1} << 31;
  if (tokens < 0 || tokens >= most) return moe::InvalidArgument("num_tokens is ", tokens, ", must be 0 to ", most - 1);
  if (tokens > 0 && x == nullptr) return NullArgument("x");
  if (tokens > 0 && y == nullptr) return NullArgument("y");
  return stats ? moe::capi::CheckStruct("stats", stats, sizeof(*stats)) : absl::OkStatus();
}

absl::Status CheckBackward(const moe::capi::LayerState& l, const void* dy, double scale, const void* dx) {
  if (!l.can_backward()) return moe::FailedPrecondition("moe_layer_backward needs a moe_layer_forward before it, once each");
  if (l.tokens() > 0 && dy == nullptr) return NullArgument("dy");
  if (l.tokens() > 0 && dx == nullptr) return NullArgument("dx");
  return std::isfinite(scale) ? absl::OkStatus() : moe::InvalidArgument("aux_loss_scale is ", scale, ", must be a finite number");
}

// A failure of this rank alone ends the layer's group.
absl::Status RunInGroup(moe_layer* l, const std::function<absl::Status()>& f) {
  moe::Communicator* group = Several(l->layer->group());
  return group == nullptr ? f() : moe::capi::Run(l->state->rank, group->size(), [&](const absl::Status& s) { group->Abort(s); }, f);
}

}  // namespace

extern "C" {

moe_status* moe_layer_create(moe_engine* engine, moe_group* group, moe_layer** layer) {
  return Call("engine", engine, [&]() -> absl::Status {
    if (group == nullptr) return NullArgument("group");
    if (group->state != engine->state) return moe::InvalidArgument("group was made from another engine");
    // The same answer on every member, so nobody has to ask the others; across stages that alone could hang.
    MOE_RETURN_IF_ERROR(engine->state->mesh->CheckWithinStage(group->comm->members()));
    auto handle = std::make_unique<moe_layer>(engine->state);
    absl::StatusOr<std::unique_ptr<moe::capi::LayerState>> made = NullArgument("layer");
    if (layer != nullptr) made = moe::capi::LayerState::Make(*engine->state, group->comm);
    MOE_RETURN_IF_ERROR(moe::capi::Meet(Several(group->comm), made.status(), "arguments", 0));
    handle->layer = *std::move(made);
    *layer = handle.release();
    return absl::OkStatus();
  });
}

moe_status* moe_layer_forward(moe_layer* layer, const void* x, int64_t num_tokens, const uint8_t* token_valid, void* y, moe_layer_stats* stats) {
  return Call("layer", layer, [&]() -> absl::Status {
    moe::capi::LayerState& l = *layer->layer;
    int64_t first_token = 0;
    MOE_RETURN_IF_ERROR(MeetWithTokens(Several(l.group()), CheckForward(x, num_tokens, y, stats), num_tokens, &first_token));
    MOE_RETURN_IF_ERROR(RunInGroup(layer, [&] { return l.Forward(x, num_tokens, token_valid, first_token, y); }));
    if (stats == nullptr) return absl::OkStatus();
    const moe::RoutingLosses losses = l.Losses();
    moe_layer_stats out{};
    out.aux_loss = losses.aux;
    out.z_loss = losses.z;
    out.tokens = l.sums().tokens;
    out.dropped_routes = l.sums().dropped;
    moe::capi::WriteStruct(out, stats);
    return absl::OkStatus();
  });
}

moe_status* moe_layer_backward(moe_layer* layer, const void* dy, double aux_loss_scale, void* dx) {
  return Call("layer", layer, [&]() -> absl::Status {
    moe::capi::LayerState& l = *layer->layer;
    MOE_RETURN_IF_ERROR(moe::capi::Meet(Several(l.group()), CheckBackward(l, dy, aux_loss_scale, dx), "aux_loss_scale", moe::capi::Hash(&aux_loss_scale, sizeof(aux_loss_scale))));
    return RunInGroup(layer, [&] { return l.Backward(dy, aux_loss_scale, dx); });
  });
}

moe_status* moe_layer_zero_grad(moe_layer* layer) {
  return Call("layer", layer, [&] { return layer->layer->params()->ZeroGrad(); });
}

moe_status* moe_layer_expert_count(const moe_layer* layer, int64_t* expert_count, int64_t n) {
  return Call("layer", layer, [&]() -> absl::Status {
    const moe::capi::LayerState& l = *layer->layer;
    if (expert_count == nullptr) return NullArgument("expert_count");
    if (!l.has_forward()) return moe::FailedPrecondition("no moe_layer_forward yet, or the last one failed");
    const std::vector<int64_t>& count = l.sums().count;
    if (n != static_cast<int64_t>(count.size())) return moe::InvalidArgument("n is ", n, ", must be model.num_global_experts, which is ", count.size());
    std::copy(count.begin(), count.end(), expert_count);
    return absl::OkStatus();
  });
}

moe_status* moe_layer_routing(const moe_layer* layer, int32_t* ids, void* weights) {
  return Call("layer", layer, [&]() -> absl::Status {
    if (!layer->layer->has_forward()) return moe::FailedPrecondition("no moe_layer_forward yet, or the last one failed");
    return layer->layer->Routing(ids, weights);
  });
}

int64_t moe_layer_num_parameters(const moe_layer* layer) { return layer ? static_cast<int64_t>(layer->layer->pieces().size()) : -1; }

moe_status* moe_layer_parameter(moe_layer* layer, int64_t index, moe_parameter* parameter) {
  return Call("layer", layer, [&]() -> absl::Status {
    const auto& pieces = layer->layer->pieces();
    MOE_RETURN_IF_ERROR(moe::capi::ReadStruct("parameter", parameter).status());
    if (index < 0 || index >= static_cast<int64_t>(pieces.size())) return absl::OutOfRangeError(absl::StrCat("index is ", index, ", the layer has ", pieces.size(), " parameters"));
    moe::capi::DescribeParameter(*pieces[index].first, *pieces[index].second, parameter);
    return absl::OkStatus();
  });
}

void moe_layer_destroy(moe_layer* layer) { moe::capi::Destroy(layer); }

}  // extern "C"
