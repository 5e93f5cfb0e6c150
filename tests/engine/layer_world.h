// One MoE layer on threads as ranks: etp x ep x edp, each with tokens of its own. Gathers what ranks have into global tensors,
// so that layouts can be compared with one rank.
#ifndef MOE_TESTS_ENGINE_LAYER_WORLD_H_
#define MOE_TESTS_ENGINE_LAYER_WORLD_H_

#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/base/random.h"
#include "core/device/host_copy.h"
#include "core/moe/moe_layer.h"
#include "experts/registry.h"
#include "transport/inproc/inproc.h"

namespace moe::testing {

// Passes everything on and notes each collective as "GROUP KIND".
class NotedGroup : public Communicator {
 public:
  NotedGroup(Communicator* inner, std::string name, std::vector<std::string>* log) : inner_(inner), name_(std::move(name)), log_(log) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int64_t id() const override { return inner_->id(); }
  int64_t epoch() const override { return inner_->epoch(); }
  absl::Span<const int64_t> members() const override { return inner_->members(); }
  absl::StatusOr<WorkPtr> PostAllToAllV(const AllToAllV& a) override { Note("A2AV"); return inner_->PostAllToAllV(a); }
  absl::StatusOr<WorkPtr> PostAllReduce(void* p, int64_t n, DType d, ReduceOp op) override { Note("AR"); return inner_->PostAllReduce(p, n, d, op); }
  absl::StatusOr<WorkPtr> PostAllGather(const void* s, int64_t bytes, void* r) override { Note("AG"); return inner_->PostAllGather(s, bytes, r); }
  absl::StatusOr<WorkPtr> PostReduceScatter(const void* s, void* r, int64_t n, DType d, ReduceOp op) override { Note("RS"); return inner_->PostReduceScatter(s, r, n, d, op); }
  absl::StatusOr<WorkPtr> PostBroadcast(void* p, int64_t bytes, int root) override { Note("BC"); return inner_->PostBroadcast(p, bytes, root); }
  absl::StatusOr<WorkPtr> PostSend(const void* p, int64_t bytes, int to, uint32_t tag) override { Note("send"); return inner_->PostSend(p, bytes, to, tag); }
  absl::StatusOr<WorkPtr> PostRecv(void* p, int64_t bytes, int from, uint32_t tag) override { Note("recv"); return inner_->PostRecv(p, bytes, from, tag); }
  absl::StatusOr<WorkPtr> PostBarrier() override { Note("barrier"); return inner_->PostBarrier(); }
  void Abort(const absl::Status& reason) override { inner_->Abort(reason); }

 private:
  void Note(const char* what) { log_->push_back(name_ + " " + what); }
  Communicator* const inner_;
  const std::string name_;
  std::vector<std::string>* const log_;
};

struct LayerLayout {
  int64_t etp = 1, ep = 1, edp = 1;
  std::vector<int64_t> tokens;   // of each rank; rank = (edp * ep + ep) * etp + etp
  int64_t ranks() const { return etp * ep * edp; }
  int64_t total() const { return std::accumulate(tokens.begin(), tokens.end(), int64_t{0}); }
  std::string name() const { return absl::StrCat("etp ", etp, " ep ", ep, " edp ", edp, " tokens ", absl::StrJoin(tokens, ",")); }
};

struct LayerMachine {
  std::string name;
  DType dtype;
  double tolerance;
  absl::StatusOr<std::unique_ptr<Device>> (*make)();
};

// What a test does on one rank.
struct LayerRank {
  int64_t rank = 0, first_token = 0, tokens = 0;
  int64_t etp_rank = 0;
  std::unique_ptr<Device> device;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<MoeLayer> layer;
  MoeGroups groups;
  std::vector<std::string> log;

  ModuleContext Context() const {
    ModuleContext c;
    c.device = device.get();
    c.arena = arena.get();
    c.training = true;
    c.noise_key = 4711;
    c.first_token = first_token;
    return c;
  }
  // Random numbers of this rank's tokens: row t is that of global token first_token + t.
  absl::StatusOr<TensorView> Rows(const char* what) const {
    MOE_ASSIGN_OR_RETURN(TensorView v, arena->Make(store->dtype(), {tokens, layer->spec().d_model}));
    MOE_RETURN_IF_ERROR(device->RandomNormal(v, StreamKey(3, what), first_token * v.dim(1), 0, 1));
    return v;
  }
};

// Runs `f` on every rank; each one's status.
inline std::vector<absl::Status> RunLayerRanks(const MoeLayerSpec& spec, const LayerLayout& layout, const LayerMachine& machine, const std::function<absl::Status(LayerRank*)>& f) {
  const auto world = std::make_shared<InprocWorld>(layout.ranks());
  std::vector<absl::Status> results(layout.ranks());
  const auto body = [&](int64_t rank) -> absl::Status {
    LayerRank r;
    r.rank = rank;
    r.first_token = std::accumulate(layout.tokens.begin(), layout.tokens.begin() + rank, int64_t{0});
    r.tokens = layout.tokens[rank];
    r.etp_rank = rank % layout.etp;
    MOE_ASSIGN_OR_RETURN(r.device, machine.make());
    MOE_ASSIGN_OR_RETURN(const auto transport, MakeInprocTransport(world, rank));
    std::vector<int64_t> all(layout.ranks()), etp, ep;
    std::iota(all.begin(), all.end(), 0);
    const int64_t block = layout.etp * layout.ep;
    for (int64_t m : all) {
      if (m / layout.etp == rank / layout.etp) etp.push_back(m);
      if (m / block == rank / block && m % layout.etp == r.etp_rank) ep.push_back(m);
    }
    MOE_ASSIGN_OR_RETURN(const auto batch_group, transport->CreateGroup(1, all));
    MOE_ASSIGN_OR_RETURN(const auto etp_group, transport->CreateGroup(100 + etp[0], etp));
    MOE_ASSIGN_OR_RETURN(const auto ep_group, transport->CreateGroup(200 + ep[0], ep));
    NotedGroup noted_batch(batch_group.get(), "batch", &r.log), noted_etp(etp_group.get(), "etp", &r.log), noted_ep(ep_group.get(), "ep", &r.log);
    r.groups.batch = &noted_batch;
    r.groups.etp = &noted_etp;
    r.groups.ep = &noted_ep;
    const auto registry = MakeDefaultRegistry();
    MOE_ASSIGN_OR_RETURN(const auto partition, registry->MakePartition(config::PartitionConfig()));
    MOE_ASSIGN_OR_RETURN(const Placement placement, partition->Place(spec.num_global_experts, layout.ep));
    MOE_ASSIGN_OR_RETURN(r.layer, MoeLayer::Make(spec, placement, r.groups, *registry));
    r.arena = std::make_unique<Arena>(r.device.get());
    r.store = std::make_unique<ParamStore>(r.device.get(), machine.dtype);
    MOE_RETURN_IF_ERROR(r.layer->DeclareParams(r.store.get(), "moe"));
    MOE_RETURN_IF_ERROR(r.store->Materialize(5));
    for (Param& p : r.store->params()) {   // biases start at 0, which would not be a test
      for (const ParamPiece& q : p.pieces)
        if (q.shape.size() == 1) MOE_RETURN_IF_ERROR(r.device->RandomNormal(PieceView(p.value, q), StreamKey(6, q.name), q.begin[0], 0, 0.5));
    }
    const absl::Status done = f(&r);
    if (!done.ok() && done.code() != absl::StatusCode::kInvalidArgument) {
      transport->Abort(done);   // not one that all ranks have: the others must not wait
      return done;
    }
    const absl::Status left = transport->Shutdown();
    return done.ok() ? left : done;
  };
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < layout.ranks(); ++r) threads.emplace_back([&, r] { results[r] = body(r); });
  for (std::thread& t : threads) t.join();
  return results;
}

// Global tensors, from the pieces of ranks.
using Tensors = std::map<std::string, std::vector<double>>;

// to[global index] += the values of a piece.
inline void AddPiece(const ParamPiece& q, const std::vector<double>& values, Tensors* to) {
  std::vector<double>& all = (*to)[q.name];
  int64_t size = 1;
  for (int64_t n : q.global_shape) size *= n;
  all.resize(size, 0.0);
  for (int64_t i = 0; i < q.size(); ++i) {
    int64_t at = 0, rest = i, scale = 1;
    for (int d = static_cast<int>(q.shape.size()) - 1; d >= 0; --d) {
      at += (q.begin[d] + rest % q.shape[d]) * scale;
      rest /= q.shape[d];
      scale *= q.global_shape[d];
    }
    all[at] += values[i];
  }
}

}  // namespace moe::testing
#endif  // MOE_TESTS_ENGINE_LAYER_WORLD_H_
