// What the engine does is what the plan says, call by call: the messages that a rank posts in a step are those that the checker
// simulated, in the same order on the same groups. And who takes part in each reduction: rank r gives 2^r, the sum spells the
// ranks (case G8).
#include "core/plan/collectives.h"
#include "tests/engine/parallel_run.h"

namespace moe {
namespace {

std::unique_ptr<Device> OneThread() { return *MakeCpuDevice(1); }

struct Call {
  Collective::Kind kind;
  GroupKind group;
  uint32_t tag = 0;   // sends and receives
  bool operator==(const Call& o) const { return kind == o.kind && group == o.group && tag == o.tag; }
};
std::string ToString(const Call& c) { return absl::StrCat(Name(c.kind), " on ", Name(c.group), c.tag ? absl::StrCat(" tag ", c.tag) : ""); }

// Writes down what is posted.
class Recorder : public Communicator {
 public:
  Recorder(GroupKind kind, std::unique_ptr<Communicator> c, std::vector<Call>* calls) : kind_(kind), c_(std::move(c)), calls_(calls) {}
  int rank() const override { return c_->rank(); }
  int size() const override { return c_->size(); }
  int64_t id() const override { return c_->id(); }
  int64_t epoch() const override { return c_->epoch(); }
  absl::Span<const int64_t> members() const override { return c_->members(); }
  absl::StatusOr<WorkPtr> PostAllToAllV(const AllToAllV& a) override { Note(Collective::Kind::kAllToAllV); return c_->PostAllToAllV(a); }
  absl::StatusOr<WorkPtr> PostAllReduce(void* p, int64_t n, DType t, ReduceOp op) override { Note(Collective::Kind::kAllReduce); return c_->PostAllReduce(p, n, t, op); }
  absl::StatusOr<WorkPtr> PostAllGather(const void* s, int64_t n, void* r) override { Note(Collective::Kind::kAllGather); return c_->PostAllGather(s, n, r); }
  absl::StatusOr<WorkPtr> PostReduceScatter(const void*, void*, int64_t, DType, ReduceOp) override { return Internal("not planned"); }
  absl::StatusOr<WorkPtr> PostBroadcast(void*, int64_t, int) override { return Internal("not planned"); }
  absl::StatusOr<WorkPtr> PostSend(const void* p, int64_t n, int to, uint32_t tag) override { Note(Collective::Kind::kSend, tag); return c_->PostSend(p, n, to, tag); }
  absl::StatusOr<WorkPtr> PostRecv(void* p, int64_t n, int from, uint32_t tag) override { Note(Collective::Kind::kReceive, tag); return c_->PostRecv(p, n, from, tag); }
  absl::StatusOr<WorkPtr> PostBarrier() override { return Internal("not planned"); }
  void Abort(const absl::Status& s) override { c_->Abort(s); }

 private:
  void Note(Collective::Kind kind, uint32_t tag = 0) { calls_->push_back({kind, kind_, tag}); }
  GroupKind kind_;
  std::unique_ptr<Communicator> c_;
  std::vector<Call>* calls_;
};

struct Case { int32_t dp, tp, pp, cp, ep, etp; const char* kind; int64_t micro_batch; bool tied = false, capacity = false, aux = true; int32_t dense_layers = 0; };

class ProgramCallsTest : public ::testing::TestWithParam<Case> {};

config::Config Make(const Case& p) {
  config::Config c = SweepConfig();
  auto* m = c.mutable_mesh();
  m->set_dp(p.dp);
  m->set_tp(p.tp);
  m->set_pp(p.pp);
  m->set_cp(p.cp);
  m->set_ep(p.ep);
  m->set_etp(p.etp);
  c.set_ranks(p.dp * p.tp * p.pp * p.cp);
  c.mutable_pipeline()->set_kind(p.kind);
  c.mutable_train()->set_micro_batch(p.micro_batch);
  c.mutable_model()->set_tie_embeddings(p.tied);
  c.mutable_model()->set_num_dense_layers(p.dense_layers);
  if (p.capacity) {
    c.mutable_gate()->set_capacity_factor(1.0);
    c.mutable_gate()->set_capacity_scope("global");
    c.mutable_gate()->set_drop_policy("probability");
  }
  if (!p.aux) c.mutable_gate()->set_aux_loss("none");
  return c;
}

TEST_P(ProgramCallsTest, EngineFollowsThePlan) {
  const Case& p = GetParam();
  const config::Config c = Make(p);
  const int64_t world = c.ranks();
  std::vector<std::vector<Call>> calls(world);
  const auto trained = TrainOn(c, world, OneThread, 1, [&](GroupKind kind, std::unique_ptr<Communicator> comm) {
    std::vector<Call>* mine = &calls[comm->members()[comm->rank()]];
    return std::make_unique<Recorder>(kind, std::move(comm), mine);
  });
  ASSERT_TRUE(trained.ok()) << trained.status();

  const auto mesh = MeshFromConfig(world, c.mesh(), c.model().num_global_experts());
  ASSERT_TRUE(mesh.ok());
  const auto chunks = PlaceLayers(c, p.pp);
  ASSERT_TRUE(chunks.ok());
  StepShape shape;
  shape.schedule.kind = *ParseScheduleKind(p.kind);
  shape.schedule.stages = p.pp;
  shape.schedule.virtual_stages = VirtualStages(c, p.pp);
  const int64_t share = c.train().global_batch() / p.dp, size = MicroBatchSize(c, p.pp, share);
  shape.schedule.micro_batches = (share + size - 1) / size;
  shape.needs_routing_sums = p.aux;
  shape.tied_embeddings = p.tied;
  const auto programs = MakeStepProgram(shape);
  ASSERT_TRUE(programs.ok()) << programs.status();
  CollectiveShape expand{c, *chunks, true, size * c.train().seq_len() / p.cp};
  for (int64_t rank = 0; rank < world; ++rank) {
    std::vector<Call> want;
    std::vector<std::string> of;
    for (const Op& op : (*programs)[mesh->coordinate(rank, Axis::kPp)]) {
      for (const Collective& x : CollectivesOf(op, expand, GroupSizesOf(*mesh, rank))) {
        const bool transfer = x.kind == Collective::Kind::kSend || x.kind == Collective::Kind::kReceive;
        want.push_back({x.kind, x.group, transfer ? Tag(x.transfer, shape.schedule.micro_batches, static_cast<int64_t>(chunks->size())) : 0});
        of.push_back(absl::StrCat(ToString(op), ": ", x.what, " of layer ", x.layer));
      }
    }
    for (size_t i = 0; i < std::min(want.size(), calls[rank].size()); ++i)
      ASSERT_TRUE(want[i] == calls[rank][i]) << "rank " << rank << " call " << i << ": the plan says " << ToString(want[i]) << " (" << of[i] << "), the engine did " << ToString(calls[rank][i]);
    ASSERT_EQ(calls[rank].size(), want.size()) << "rank " << rank << (want.size() > calls[rank].size() ? absl::StrCat(": the engine left out ", of[calls[rank].size()]) : "");
    if (world > 1) { EXPECT_GT(want.size(), 0u); }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ProgramCallsTest,
                         ::testing::Values(Case{1, 1, 1, 1, 1, 1, "1f1b", 0}, Case{4, 1, 1, 1, 4, 1, "1f1b", 1}, Case{2, 1, 2, 1, 2, 1, "1f1b", 1}, Case{1, 2, 2, 1, 1, 2, "gpipe", 2},
                                           Case{1, 1, 4, 1, 1, 1, "zero_bubble", 1}, Case{1, 2, 2, 2, 2, 1, "interleaved", 1}, Case{2, 2, 1, 2, 2, 2, "1f1b", 2}, Case{1, 1, 2, 1, 1, 1, "interleaved", 2},
                                           Case{2, 1, 2, 1, 2, 1, "1f1b", 2, true}, Case{2, 2, 2, 1, 2, 1, "zero_bubble", 1, true, false, false}, Case{2, 1, 2, 1, 2, 1, "1f1b", 2, false, true},
                                           Case{1, 2, 2, 1, 2, 1, "gpipe", 1, false, false, true, 2}, Case{1, 2, 2, 2, 4, 1, "zero_bubble", 1, false, false, false, 1}));

// Which ranks a sum holds: powers of two. All layouts of 8 ranks have every group of groups.md.
TEST(WhoTakesPart, SumsSpellTheirRanks) {
  for (const Case& p : {Case{4, 1, 2, 1, 4, 1, "1f1b", 0}, Case{1, 2, 2, 2, 1, 2, "1f1b", 0}, Case{2, 2, 2, 1, 2, 2, "1f1b", 0}, Case{2, 4, 1, 1, 2, 2, "1f1b", 0}, Case{1, 2, 1, 4, 1, 4, "1f1b", 0}}) {
    const config::Config c = Make(p);
    const int64_t world = c.ranks();
    const auto mesh = MeshFromConfig(world, c.mesh(), c.model().num_global_experts());
    ASSERT_TRUE(mesh.ok());
    const absl::Status s = RunWorld(c, world, [] { return MakeReferenceDevice(); }, [&](RankWorld* w) -> absl::Status {
      const std::pair<ParamKind, GroupKind> reductions[] = {{ParamKind::kDense, GroupKind::kDpCp}, {ParamKind::kReplicated, GroupKind::kStage}, {ParamKind::kExpert, GroupKind::kEdp}};
      MOE_RETURN_IF_ERROR(w->model->params()->ZeroGrad());
      for (const auto& [kind, group] : reductions) {
        const TensorView g = w->model->params()->flat_grad(kind);
        MOE_RETURN_IF_ERROR(w->device->Fill(g, std::ldexp(1.0, static_cast<int>(w->rank))));
        MOE_RETURN_IF_ERROR(w->model->ReduceGradients(kind));
        double spelled = 0;
        for (int64_t r : mesh->Group(group, w->rank)) spelled += std::ldexp(1.0, static_cast<int>(r));
        const double got = g.dtype() == DType::kF64 ? g.as<double>()[0] : static_cast<double>(g.as<float>()[0]);
        if (got != spelled) return Internal("rank ", w->rank, " ", Name(kind), " gradients: the sum spells ", got, ", the group is ", spelled);
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(s.ok()) << s;
  }
}

}  // namespace
}  // namespace moe
