#include "core/config/validate.h"

#include <algorithm>

#include "core/config/config_io.h"
#include "core/config/expect_refused.h"
#include "nlohmann/json.hpp"

namespace moe {
namespace {

// Modules by name alone, as picky as the bundled ones where it matters here.
class Names final : public ModuleFactory {
 public:
  absl::StatusOr<std::unique_ptr<Gate>> MakeGate(const GateSpec& s) const override {
    if (s.config.kind() == "switch" && s.top_k != 1) return InvalidArgument("model.top_k is ", s.top_k, "; gate.kind=switch: set model.top_k=1");
    return Known("gate.kind", s.config.kind(), GateNames(), std::unique_ptr<Gate>());
  }
  absl::StatusOr<std::unique_ptr<Expert>> MakeExpert(const ExpertSpec& s) const override { return Known("expert.kind", s.config.kind(), ExpertNames(), std::unique_ptr<Expert>()); }
  absl::StatusOr<std::unique_ptr<Partition>> MakePartition(const config::PartitionConfig& c) const override {
    return Known("partition.kind", c.kind(), PartitionNames(), std::unique_ptr<Partition>(new Even()));
  }
  std::vector<std::string> GateNames() const override { return {"mixtral", "switch"}; }
  std::vector<std::string> ExpertNames() const override { return {"swiglu", "gelu"}; }
  std::vector<std::string> PartitionNames() const override { return {"block"}; }

 private:
  struct Even final : Partition {
    std::string name() const override { return "block"; }
    absl::StatusOr<Placement> Place(int64_t experts, int64_t ep) const override {
      if (experts % ep != 0) return InvalidArgument("model.num_global_experts is ", experts, ", not divisible by mesh.ep, which is ", ep);
      std::vector<int64_t> owner(experts);
      for (int64_t e = 0; e < experts; ++e) owner[e] = e / (experts / ep);
      return Placement::Make(ep, owner);
    }
  };
  template <typename T>
  static absl::StatusOr<T> Known(const char* field, const std::string& name, const std::vector<std::string>& names, T made) {
    for (const std::string& n : names)
      if (n == name) return made;
    return InvalidArgument(field, " is '", name, "'; allowed: ", names.front());
  }
};

using Set = std::vector<std::pair<const char*, const char*>>;

absl::Status Validate(const Set& set) {
  // Not the defaults, which are tuned.
  config::Config c = *ParseConfig("ranks: 2 model { num_layers: 4 d_model: 256 num_heads: 8 num_kv_heads: 4 num_global_experts: 8 top_k: 2 d_hidden: 512 }", "base");
  for (const auto& [path, value] : set) EXPECT_TRUE(SetConfigField(&c, path, value).ok()) << path;
  return ValidateConfig(c, Names());
}

TEST(ValidateTest, Accepted) {
  EXPECT_TRUE(ValidateConfig(config::Config(), Names()).ok());   // the defaults
  const Set cases[] = {
      {},
      {{"gate", "switch"}, {"model.top_k", "1"}},
      {{"model.dtype", "float64"}, {"device", "reference"}},
      {{"model.num_heads", "3"}, {"model.num_kv_heads", "3"}, {"model.head_dim", "10"}},
      {{"ranks", "16"}, {"train.global_batch", "3"}},          // ranks without a sequence are legal
      {{"ranks", "6"}},                                        // ep is chosen: 2
      {{"mesh.tp", "1"}, {"mesh.pp", "1"}, {"mesh.cp", "1"}, {"mesh.etp", "1"}},
      {{"ranks", "32"}, {"mesh.tp", "2"}, {"mesh.pp", "2"}, {"mesh.cp", "2"}, {"mesh.etp", "2"}, {"mesh.ep", "8"}},
      {{"model.num_dense_layers", "4"}},
      {{"optimizer.schedule", "constant"}, {"optimizer.decay_steps", "300"}, {"optimizer.warmup_steps", "999"}},
      {{"optimizer.decay_steps", "0"}, {"optimizer.warmup_steps", "999"}},
  };
  for (const Set& set : cases) EXPECT_TRUE(Validate(set).ok()) << Validate(set);
}

TEST(ValidateTest, FieldsThatDoNotFitEachOther) {
  const struct { Set set; std::vector<std::string> parts; } cases[] = {
      {{{"model.top_k", "9"}}, {"model.top_k is 9, must be at most model.num_global_experts, which is 8"}},
      {{{"model.num_kv_heads", "3"}}, {"model.num_heads is 8, not divisible by model.num_kv_heads, which is 3"}},
      {{{"model.d_model", "260"}}, {"model.d_model is 260, not divisible by model.num_heads, which is 8", "model.head_dim"}},
      {{{"model.head_dim", "7"}}, {"model.head_dim is 7, must be even"}},
      {{{"model.d_model", "24"}}, {"24 / 8 = 3, must be even"}},
      {{{"model.num_dense_layers", "5"}}, {"model.num_dense_layers is 5, must be at most model.num_layers, which is 4"}},
      {{{"model.dtype", "float64"}}, {"model.dtype is float64 and device is cpu", "device=reference"}},
      {{{"gate", "switch"}}, {"model.top_k is 2", "model.top_k=1"}},
      {{{"gate", "guess"}}, {"gate.kind is 'guess'", "mixtral"}},
      {{{"expert", "x"}}, {"expert.kind is 'x'", "swiglu"}},
      {{{"partition", "x"}}, {"partition.kind is 'x'", "block"}},
      {{{"ranks", "4"}, {"mesh.ep", "3"}}, {"mesh.ep 3", "ranks"}},
      {{{"ranks", "4"}, {"mesh.dp", "2"}}, {"mesh.dp 2", "mesh.dp=4"}},
      {{{"ranks", "3"}, {"mesh.ep", "3"}}, {"model.num_global_experts is 8, not divisible by mesh.ep, which is 3"}},
      {{{"optimizer.decay_steps", "300"}, {"optimizer.warmup_steps", "301"}}, {"optimizer.decay_steps is 300, must be at least optimizer.warmup_steps, which is 301"}},
      {{{"model.num_global_experts", "1000000"}, {"model.d_hidden", "10000000"}}, {"model.d_hidden 10000000", "no machine"}},
  };
  for (const auto& t : cases) ExpectRefused(Validate(t.set), t.parts);
}

TEST(ValidateTest, AllProblemsAtOnceOneLineEach) {
  const absl::Status s = Validate({{"model.top_k", "9"}, {"model.num_kv_heads", "3"}, {"mesh.tp", "3"}, {"expert", "x"}});
  ExpectRefused(s, {"model.top_k is 9", "model.num_kv_heads", "mesh.tp 3", "expert.kind is 'x'"});
  const std::string text(s.message());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
}

TEST(ValidateTest, RangesComeFirst) {
  config::Config c;
  c.mutable_model()->set_num_kv_heads(0);
  ExpectRefused(ValidateConfig(c, Names()), {"model.num_kv_heads is 0"});
}

TEST(ValidateTest, DescriptionListsTheModulesAtHand) {
  const auto all = nlohmann::json::parse(DescribeConfig(std::make_unique<Names>().get()));
  int seen = 0;
  for (const auto& f : all) {
    if (f["path"] == "gate.kind") { EXPECT_EQ(f["allowed"], "mixtral,switch"); ++seen; }
    if (f["path"] == "expert.kind") { EXPECT_EQ(f["allowed"], "swiglu,gelu"); ++seen; }
    if (f["path"] == "partition.kind") { EXPECT_EQ(f["allowed"], "block"); ++seen; }
  }
  EXPECT_EQ(seen, 3);
}

}  // namespace
}  // namespace moe
