// Several sets of expert-parallel groups alive at once, made at different times, with pipeline stages (case H26): two models of different
// meshes over the same ranks and one transport, trained in turn, each as if it were alone.
#include "tests/engine/parallel_run.h"

namespace moe {
namespace {

struct Second {
  std::array<std::unique_ptr<Communicator>, kGroupKinds.size()> groups;
  std::unique_ptr<Model> model;
};

absl::Status MakeSecond(const config::Config& c, RankWorld* w, int64_t first_id, Second* out) {
  MOE_ASSIGN_OR_RETURN(const Mesh mesh, MeshFromConfig(w->world, c.mesh(), c.model().num_global_experts()));
  ModelContext context;
  context.device = w->device.get();
  context.modules = w->modules.get();
  context.world = w->all.get();
  for (GroupKind kind : kGroupKinds) {
    std::unique_ptr<Communicator>& group = out->groups[static_cast<size_t>(kind)];
    MOE_ASSIGN_OR_RETURN(group, w->transport->CreateGroup(first_id + mesh.GroupId(kind, w->rank), mesh.Group(kind, w->rank)));
    context.ranks.Set(kind, group.get());
  }
  MOE_ASSIGN_OR_RETURN(out->model, Model::Make(c, context));
  return absl::OkStatus();
}

absl::Status Step(const config::Config& c, Model* model, int step, std::vector<double>* losses) {
  const BatchShape shape{c.train().global_batch(), c.train().seq_len()};
  const Text text = TextOf(c, shape, 100 + step);
  StepStats s;
  MOE_RETURN_IF_ERROR(model->ForwardBackward(ShareOf(text, shape.sequences, *model), &s));
  MOE_RETURN_IF_ERROR(model->OptimizerStep(&s));
  if (losses) losses->push_back(s.loss);
  return absl::OkStatus();
}

TEST(GroupsTest, TwoModelsOfDifferentMeshesTrainInTurn) {
  const DeviceMaker reference = [] { return MakeReferenceDevice(); };
  config::Config plain = SweepConfig();
  plain.mutable_model()->set_dtype("float64");
  plain.mutable_train()->set_micro_batch(1);
  const config::Config a = WithAxes(plain, {4, 1, 2, 1, 4, 1});
  config::Config b = WithAxes(plain, {1, 2, 4, 1, 2, 1});
  b.mutable_pipeline()->set_kind("zero_bubble");
  const auto one = TrainOn(plain, 1, reference, 4);
  ASSERT_TRUE(one.ok()) << one.status();
  std::vector<double> of_a, of_b;
  const absl::Status s = RunWorld(a, 8, reference, [&](RankWorld* w) -> absl::Status {
    std::vector<double>* to_a = w->rank == 0 ? &of_a : nullptr;
    std::vector<double>* to_b = w->rank == 0 ? &of_b : nullptr;
    MOE_RETURN_IF_ERROR(Step(a, w->model.get(), 0, to_a));
    Second second;   // its groups are made while those of the first are in use
    MOE_RETURN_IF_ERROR(MakeSecond(b, w, int64_t{1} << 30, &second));
    for (int i = 0; i < 3; ++i) {
      MOE_RETURN_IF_ERROR(Step(b, second.model.get(), i, to_b));
      MOE_RETURN_IF_ERROR(Step(a, w->model.get(), i + 1, to_a));
    }
    return Step(b, second.model.get(), 3, to_b);
  });
  ASSERT_TRUE(s.ok()) << s;
  ASSERT_EQ(of_a.size(), 4u);
  ASSERT_EQ(of_b.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(of_a[i], one->steps[i].loss, 1e-10 * one->steps[i].loss) << "step " << i;
    EXPECT_NEAR(of_b[i], one->steps[i].loss, 1e-10 * one->steps[i].loss) << "step " << i;
  }
}

}  // namespace
}  // namespace moe
