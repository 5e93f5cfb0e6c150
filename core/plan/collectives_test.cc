#include "core/plan/collectives.h"

#include "absl/strings/str_join.h"
#include "core/plan/loss_rows.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

config::Config Model(int64_t layers, int64_t dense) {
  config::Config c;
  c.mutable_model()->set_num_layers(layers);
  c.mutable_model()->set_num_dense_layers(dense);
  return c;
}

GroupSizes All(int64_t n) {
  GroupSizes s;
  s.fill(n);
  return s;
}
GroupSizes Only(std::vector<GroupKind> kinds) {
  GroupSizes s = All(1);
  for (GroupKind k : kinds) s[static_cast<size_t>(k)] = 2;
  return s;
}

Op Computing(OpKind kind, int64_t chunk) {
  Op op;
  op.kind = kind;
  op.chunk = chunk;
  op.micro = 0;
  return op;
}
Op Shared(OpKind kind) {
  Op op;
  op.kind = kind;
  return op;
}

// "AG cp attention kv@0".
std::string Text(const std::vector<Collective>& list) {
  static constexpr const char* letters[] = {"AG", "A2A", "AR", "send", "recv"};
  return absl::StrJoin(list, ", ", [](std::string* out, const Collective& c) {
    absl::StrAppend(out, letters[static_cast<int>(c.kind)], " ", Name(c.group), " ", c.what, c.layer >= 0 ? absl::StrCat("@", c.layer) : "");
  });
}

const std::vector<Chunk> kWhole = {{0, 0, 2, true, true}};
const std::vector<Chunk> kTwo = {{0, 0, 1, true, false}, {1, 1, 1, false, true}};

TEST(Collectives, ForwardOfADenseAndAnExpertLayer) {
  const config::Config c = Model(2, 1);
  const CollectiveShape shape{c, kWhole, true, 0};
  EXPECT_EQ(Text(CollectivesOf(Computing(OpKind::kForward, 0), shape, All(2))),
            "A2A tp embedding reduce, A2A tp attention gather@0, AG cp attention kv@0, A2A tp attention reduce@0, A2A tp ffn gather@0, A2A tp ffn reduce@0, "
            "A2A tp attention gather@1, AG cp attention kv@1, A2A tp attention reduce@1, AG ep counts@1, A2A ep dispatch@1, AG etp etp counts@1, A2A etp etp gather@1, A2A etp etp reduce@1, A2A ep combine@1, "
            "A2A tp head gather, AG tp head softmax, A2A tp head reduce");
}

TEST(Collectives, RouteIsTheForwardWithoutTheHead) {
  const config::Config c = Model(2, 1);
  const CollectiveShape shape{c, kTwo, true, 0};
  EXPECT_EQ(Text(CollectivesOf(Computing(OpKind::kRoute, 1), shape, Only({GroupKind::kTp, GroupKind::kEp}))), "A2A tp attention gather@1, A2A tp attention reduce@1, AG ep counts@1, A2A ep dispatch@1, A2A ep combine@1");
  EXPECT_EQ(Text(CollectivesOf(Computing(OpKind::kRoute, 0), shape, Only({GroupKind::kTp}))), "A2A tp embedding reduce, A2A tp attention gather@0, A2A tp attention reduce@0, A2A tp ffn gather@0, A2A tp ffn reduce@0");
}

TEST(Collectives, BackwardIsInReverse) {
  const config::Config c = Model(2, 1);
  const CollectiveShape shape{c, kWhole, true, 0};
  const std::string text =
      "A2A ep dispatch@1, A2A etp etp gather@1, A2A etp etp reduce@1, A2A ep combine@1, A2A tp attention gather@1, A2A cp attention dkv reduce@1, A2A tp attention reduce@1, "
      "A2A tp ffn gather@0, A2A tp ffn reduce@0, A2A tp attention gather@0, A2A cp attention dkv reduce@0, A2A tp attention reduce@0, A2A tp embedding gather";
  EXPECT_EQ(Text(CollectivesOf(Computing(OpKind::kBackward, 0), shape, All(2))), text);
  EXPECT_EQ(Text(CollectivesOf(Computing(OpKind::kBackwardInput, 0), shape, All(2))), text);
  EXPECT_EQ(Text(CollectivesOf(Computing(OpKind::kBackwardWeight, 0), shape, All(2))), "");
}

// G10: the head's blocks depend on the rows of a micro-batch; one block even with none.
TEST(Collectives, HeadInBlocks) {
  config::Config c = Model(1, 1);
  c.mutable_model()->set_vocab_size(1000);
  const std::vector<Chunk> chunks = {{0, 0, 0, false, true}};
  const int64_t block = LossRows(1000, 2);
  EXPECT_EQ(block, (int64_t{4} << 20) / 500);
  EXPECT_EQ(LossRows(10000000, 1), 64);
  const struct { int64_t rows, blocks; } cases[] = {{0, 1}, {1, 1}, {block, 1}, {block + 1, 2}, {3 * block, 3}};
  for (const auto& k : cases) {
    for (bool training : {true, false}) {
      const CollectiveShape shape{c, chunks, training, k.rows};
      std::string want = "A2A tp head gather";
      for (int64_t i = 0; i < k.blocks; ++i) want += ", AG tp head softmax";
      if (training) want += ", A2A tp head reduce";
      EXPECT_EQ(Text(CollectivesOf(Computing(OpKind::kForward, 0), shape, Only({GroupKind::kTp}))), want) << k.rows;
    }
  }
}

TEST(Collectives, Capacity) {
  config::Config c = Model(1, 0);
  const std::vector<Chunk> chunks = {{0, 0, 1, false, false}};
  const CollectiveShape shape{c, chunks, true, 0};
  const auto text = [&](const char* scope, const char* policy) {
    c.mutable_gate()->set_capacity_factor(1);
    c.mutable_gate()->set_capacity_scope(scope);
    c.mutable_gate()->set_drop_policy(policy);
    return Text(CollectivesOf(Computing(OpKind::kForward, 0), shape, Only({GroupKind::kStage})));
  };
  EXPECT_EQ(text("rank", "position"), "AR stage routing agreed@0, AR stage capacity@0");
  EXPECT_EQ(text("rank", "probability"), "AR stage routing agreed@0, AR stage capacity@0");
  EXPECT_EQ(text("global", "position"), "AR stage routing agreed@0, AR stage capacity@0, AG stage choices@0");
  EXPECT_EQ(text("global", "probability"), "AR stage routing agreed@0, AR stage capacity@0, AG stage routes counts@0, AG stage routes@0");
}

TEST(Collectives, Reductions) {
  const config::Config c = Model(2, 0);
  const CollectiveShape shape{c, kWhole, true, 0};
  const struct { OpKind op; const char* text; } cases[] = {
      {OpKind::kBegin, "AG replica begin, AG dp begin"},
      {OpKind::kReduceRouting, "AR stage routing counts, AR stage routing probabilities, AR pp routing counts, AR pp routing probabilities"},
      {OpKind::kReduceDense, "AR dp_cp dense gradients"},
      {OpKind::kReduceReplicated, "AR stage replicated gradients"},
      {OpKind::kReduceExpert, "AR edp expert gradients"},
      {OpKind::kReduceTied, "AR ends tied gradients"},
      {OpKind::kReduceMetrics, "AR dp_cp metrics, AR pp metrics"},
      {OpKind::kReduceNorm, "AR stage norm, AR pp norm"},
      {OpKind::kUpdate, ""},
  };
  for (const auto& k : cases) {
    EXPECT_EQ(Text(CollectivesOf(Shared(k.op), shape, All(2))), k.text);
    EXPECT_EQ(Text(CollectivesOf(Shared(k.op), shape, All(1))), "");   // alone: nothing
  }
  EXPECT_EQ(Text(CollectivesOf(Computing(OpKind::kForward, 0), shape, All(1))), "");
}

TEST(Collectives, Exchange) {
  const config::Config c = Model(2, 0);
  const CollectiveShape shape{c, kTwo, true, 0};
  Op op = Shared(OpKind::kExchange);
  op.transfers = {{true, false, 0, 3, 1}, {false, true, 0, 1, 1}};
  const auto list = CollectivesOf(op, shape, All(2));
  EXPECT_EQ(Text(list), "send pp activation, recv pp gradient");
  EXPECT_EQ(list[0].transfer, op.transfers[0]);
  EXPECT_EQ(list[1].transfer, op.transfers[1]);
}

TEST(Collectives, SizesOfAMesh) {
  const Mesh mesh = *Mesh::Make(24, {2, 1, 4, 3, 1, 4});
  const GroupSizes ends = GroupSizesOf(mesh, 0), middle = GroupSizesOf(mesh, 8);
  EXPECT_EQ(ends[static_cast<size_t>(GroupKind::kStage)], 8);
  EXPECT_EQ(ends[static_cast<size_t>(GroupKind::kEp)], 4);
  EXPECT_EQ(ends[static_cast<size_t>(GroupKind::kEnds)], 2);
  EXPECT_EQ(middle[static_cast<size_t>(GroupKind::kEnds)], 1);   // between the ends: alone
}

}  // namespace
}  // namespace moe
