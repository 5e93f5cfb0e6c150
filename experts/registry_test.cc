#include "experts/registry.h"

#include "gtest/gtest.h"

namespace moe {
namespace {

void ExpectMentions(const absl::Status& s, const std::vector<std::string>& parts) {
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << s;
  for (const std::string& part : parts) EXPECT_NE(s.message().find(part), absl::string_view::npos) << "no '" << part << "' in: " << s;
}

TEST(RegistryTest, BundledModulesCarryTheirNames) {
  const auto r = MakeDefaultRegistry();
  EXPECT_EQ(r->GateNames(), (std::vector<std::string>{"mixtral", "switch"}));
  EXPECT_EQ(r->ExpertNames(), (std::vector<std::string>{"gelu", "gelu_tanh", "relu", "swiglu"}));
  EXPECT_EQ(r->PartitionNames(), (std::vector<std::string>{"block"}));
  for (const std::string& name : r->GateNames()) {
    GateSpec s;
    s.d_model = 3;
    s.num_global_experts = 4;
    s.top_k = 1;
    s.config.set_kind(name);
    auto gate = r->MakeGate(s);
    ASSERT_TRUE(gate.ok()) << gate.status();
    EXPECT_EQ((*gate)->name(), name);
    EXPECT_EQ((*gate)->top_k(), 1);
  }
  for (const std::string& name : r->ExpertNames()) {
    ExpertSpec s;
    s.d_model = 3;
    s.d_hidden = 2;
    s.num_global_experts = 1;
    s.local_experts = {0};
    s.config.set_kind(name);
    auto expert = r->MakeExpert(s);
    ASSERT_TRUE(expert.ok()) << expert.status();
    EXPECT_EQ((*expert)->name(), name);
  }
  auto partition = r->MakePartition(config::PartitionConfig());
  ASSERT_TRUE(partition.ok()) << partition.status();
  EXPECT_EQ((*partition)->name(), "block");
}

TEST(RegistryTest, UnknownNamesListTheKnownOnes) {
  const auto r = MakeDefaultRegistry();
  GateSpec g;
  g.config.set_kind("mixtrl");
  ExpectMentions(r->MakeGate(g).status(), {"gate.kind", "'mixtrl'", "mixtral, switch"});
  ExpertSpec e;
  e.config.set_kind("");
  ExpectMentions(r->MakeExpert(e).status(), {"expert.kind", "''", "gelu, gelu_tanh, relu, swiglu"});
  config::PartitionConfig p;
  p.set_kind("striped");
  ExpectMentions(r->MakePartition(p).status(), {"partition.kind", "'striped'", "block"});
}

TEST(RegistryTest, APlugInJoinsButDoesNotReplace) {
  const auto r = MakeDefaultRegistry();
  const auto own = [](const config::PartitionConfig&) -> absl::StatusOr<std::unique_ptr<Partition>> { return absl::UnimplementedError("mine"); };
  ASSERT_TRUE(r->RegisterPartition("mine", own).ok());
  EXPECT_EQ(r->RegisterPartition("mine", own).code(), absl::StatusCode::kAlreadyExists);
  const absl::Status taken = r->RegisterGate("switch", [](const GateSpec&) -> absl::StatusOr<std::unique_ptr<Gate>> { return absl::UnimplementedError("other"); });
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(taken.message().find("gate named 'switch'"), absl::string_view::npos) << taken;
  EXPECT_EQ(r->PartitionNames(), (std::vector<std::string>{"block", "mine"}));
  config::PartitionConfig p;
  p.set_kind("mine");
  EXPECT_EQ(r->MakePartition(p).status().code(), absl::StatusCode::kUnimplemented);
  GateSpec s;
  s.d_model = s.num_global_experts = s.top_k = 1;
  s.config.set_kind("switch");
  EXPECT_TRUE(r->MakeGate(s).ok());
  EXPECT_EQ(r->RegisterExpert("", [](const ExpertSpec&) -> absl::StatusOr<std::unique_ptr<Expert>> { return absl::UnimplementedError(""); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(r->RegisterExpert("empty", nullptr).code(), absl::StatusCode::kInvalidArgument);
}

// R3: a router that learns nothing is legal, but the user is told.
TEST(RegistryTest, WarnsOfARouterThatLearnsNothing) {
  config::Config c;
  EXPECT_TRUE(ModuleWarnings(c).empty());
  c.mutable_model()->set_top_k(1);
  ASSERT_EQ(ModuleWarnings(c).size(), 1u);
  EXPECT_NE(ModuleWarnings(c)[0].find("gate.kind=switch"), std::string::npos);
  c.mutable_gate()->set_kind("switch");
  EXPECT_TRUE(ModuleWarnings(c).empty());
}

}  // namespace
}  // namespace moe
