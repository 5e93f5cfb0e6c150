// Several ranks of the engine as threads of one process, for tests.
#ifndef MOE_TESTS_ENGINE_RANK_WORLD_H_
#define MOE_TESTS_ENGINE_RANK_WORLD_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/comm/agree.h"
#include "core/topology/mesh.h"
#include "tests/engine/model_fixture.h"
#include "transport/inproc/inproc.h"

namespace moe {

// One rank: its device, groups and model.
struct RankWorld {
  int64_t rank = 0, world = 1;
  std::unique_ptr<Device> device;
  std::unique_ptr<Registry> modules;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Communicator> all, batch, ep, edp;
  std::unique_ptr<Model> model;
};

using DeviceMaker = std::function<std::unique_ptr<Device>()>;

// Runs `f` on every rank of a mesh with expert-parallel size `ep`; OK or the first rank's error.
inline absl::Status RunWorld(const config::Config& c, int64_t world, int64_t ep, const DeviceMaker& make_device, const std::function<absl::Status(RankWorld*)>& f) {
  config::MeshConfig sizes;
  sizes.set_ep(static_cast<int32_t>(ep));
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, MeshFromConfig(world, sizes, c.model().num_global_experts()));
  auto shared = std::make_shared<InprocWorld>(world);
  std::vector<absl::Status> results(world);
  const auto body = [&](int64_t rank) -> absl::Status {
    RankWorld w;
    w.rank = rank;
    w.world = world;
    w.device = make_device();
    w.modules = MakeDefaultRegistry();
    MOE_ASSIGN_OR_RETURN(w.transport, MakeInprocTransport(shared, rank));
    const std::pair<GroupKind, std::unique_ptr<Communicator>*> groups[] = {{GroupKind::kStage, &w.all}, {GroupKind::kDpCp, &w.batch}, {GroupKind::kEp, &w.ep}, {GroupKind::kEdp, &w.edp}};
    for (const auto& [kind, out] : groups) {
      const auto members = mesh.Group(kind, rank);
      MOE_ASSIGN_OR_RETURN(*out, w.transport->CreateGroup(mesh.GroupId(kind, rank), members));
    }
    ModelContext context;
    context.device = w.device.get();
    context.modules = w.modules.get();
    context.world = w.all.get();
    context.batch = w.batch.get();
    context.ep = w.ep.get();
    context.edp = w.edp.get();
    context.dp_rank = mesh.coordinate(rank, Axis::kDp);
    context.dp_size = mesh.size(Axis::kDp);
    MOE_ASSIGN_OR_RETURN(w.model, Model::Make(c, context));
    const absl::Status done = f(&w);
    if (!done.ok() && !IsAgreed(done, world)) return done;
    const absl::Status left = w.transport->Shutdown();
    return done.ok() ? left : done;
  };
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world; ++r) threads.emplace_back([&, r] { results[r] = body(r); });
  for (std::thread& t : threads) t.join();
  for (const absl::Status& s : results) MOE_RETURN_IF_ERROR(s);
  return absl::OkStatus();
}

}  // namespace moe
#endif  // MOE_TESTS_ENGINE_RANK_WORLD_H_
