// Several ranks of the engine as threads of one process, for tests.
#ifndef MOE_TESTS_ENGINE_RANK_WORLD_H_
#define MOE_TESTS_ENGINE_RANK_WORLD_H_

#include <array>
#include <functional>
#include <memory>
#include <numeric>
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
  std::unique_ptr<Communicator> all;
  std::array<std::unique_ptr<Communicator>, kGroupKinds.size()> groups;   // by GroupKind
  std::unique_ptr<Model> model;
};

using DeviceMaker = std::function<std::unique_ptr<Device>()>;

// Stands between the engine and a communicator, to look at what is called.
using CommunicatorWrapper = std::function<std::unique_ptr<Communicator>(GroupKind, std::unique_ptr<Communicator>)>;

// Runs `f` on every rank of the configuration's mesh over `world` ranks; OK or the first rank's error.
inline absl::Status RunWorld(const config::Config& c, int64_t world, const DeviceMaker& make_device, const std::function<absl::Status(RankWorld*)>& f, const CommunicatorWrapper& wrap = nullptr) {
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, MeshFromConfig(world, c.mesh(), c.model().num_global_experts()));
  auto shared = std::make_shared<InprocWorld>(world);
  std::vector<absl::Status> results(world);
  const auto body = [&](int64_t rank) -> absl::Status {
    RankWorld w;
    w.rank = rank;
    w.world = world;
    w.device = make_device();
    w.modules = MakeDefaultRegistry();
    MOE_ASSIGN_OR_RETURN(w.transport, MakeInprocTransport(shared, rank));
    std::vector<int64_t> everyone(world);
    std::iota(everyone.begin(), everyone.end(), 0);
    MOE_ASSIGN_OR_RETURN(w.all, w.transport->CreateGroup(int64_t{1} << 40, everyone));
    ModelContext context;
    context.device = w.device.get();
    context.modules = w.modules.get();
    context.world = w.all.get();
    for (GroupKind kind : kGroupKinds) {
      std::unique_ptr<Communicator>& group = w.groups[static_cast<size_t>(kind)];
      MOE_ASSIGN_OR_RETURN(group, w.transport->CreateGroup(mesh.GroupId(kind, rank), mesh.Group(kind, rank)));
      if (wrap) group = wrap(kind, std::move(group));
      context.ranks.Set(kind, group.get());
    }
    MOE_ASSIGN_OR_RETURN(w.model, Model::Make(c, context));
    const absl::Status done = f(&w);
    if (!done.ok() && !IsAgreed(done, world)) {
      w.transport->Abort(done);   // nobody shall wait for this rank
      return done;
    }
    const absl::Status left = w.transport->Shutdown();
    return done.ok() ? left : done;
  };
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world; ++r) threads.emplace_back([&, r] { results[r] = body(r); });
  for (std::thread& t : threads) t.join();
  for (const absl::Status& s : results) MOE_RETURN_IF_ERROR(s);
  return absl::OkStatus();
}

// The same with an expert-parallel size.
inline absl::Status RunWorld(config::Config c, int64_t world, int64_t ep, const DeviceMaker& make_device, const std::function<absl::Status(RankWorld*)>& f) {
  c.mutable_mesh()->set_ep(static_cast<int32_t>(ep));
  return RunWorld(c, world, make_device, f);
}

}  // namespace moe
#endif  // MOE_TESTS_ENGINE_RANK_WORLD_H_
