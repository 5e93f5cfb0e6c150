#include "tests/golden/layer_case.h"

#include <algorithm>
#include <cmath>

#include "core/checkpoint/safetensors.h"
#include "gtest/gtest.h"

namespace moe::testing {
namespace {

// Rows of `width` get one more element each.
std::vector<double> AddColumn(const std::vector<double>& m, int64_t width, const std::function<double(int64_t row)>& value) {
  std::vector<double> out;
  for (size_t row = 0; row < m.size() / width; ++row) {
    out.insert(out.end(), m.begin() + row * width, m.begin() + (row + 1) * width);
    out.push_back(value(static_cast<int64_t>(row)));
  }
  return out;
}

void FoldBias(LayerCase* c) {
  const int64_t D = c->stored_D;
  const auto zero = [](int64_t) { return 0.0; };
  const std::vector<double> bias = c->real.at("router_bias_E");
  c->real["x_TD"] = AddColumn(c->real["x_TD"], D, [](int64_t) { return 1.0; });
  c->real["router_ED"] = AddColumn(c->real["router_ED"], D, [&](int64_t e) { return bias[e]; });
  c->real["dy_TD"] = AddColumn(c->real["dy_TD"], D, zero);
  c->real["w1_EFD"] = AddColumn(c->real["w1_EFD"], D, zero);
  c->real["w3_EFD"] = AddColumn(c->real["w3_EFD"], D, zero);
  // One more row of F zeros per expert is one more "element" of F per D rows.
  std::vector<double> w2;
  for (int64_t e = 0; e < c->E; ++e) {
    const auto begin = c->real["w2_EDF"].begin() + e * D * c->F;
    w2.insert(w2.end(), begin, begin + D * c->F);
    w2.insert(w2.end(), c->F, 0.0);
  }
  c->real["w2_EDF"] = std::move(w2);
  c->D = D + 1;
}

}  // namespace

int64_t LayerCase::num_valid() const { return std::count(integer.at("token_valid_T").begin(), integer.at("token_valid_T").end(), 1); }

std::vector<uint8_t> LayerCase::valid_T() const { return std::vector<uint8_t>(integer.at("token_valid_T").begin(), integer.at("token_valid_T").end()); }

config::GateConfig LayerCase::gate_config() const {
  const nlohmann::json& g = info["gate"];
  config::GateConfig c;
  c.set_kind(g["renorm"] == "before_drop" ? "mixtral" : "switch");
  if (!g["capacity_factor"].is_null()) {
    c.set_capacity_factor(g["capacity_factor"].get<double>());
    c.set_drop_policy(g["policy"].get<std::string>());
    c.set_capacity_scope(g["capacity_scope"] == "per_rank" ? "rank" : "global");
  }
  return c;
}

std::vector<double> LayerCase::Stored(const std::vector<double>& rows) const {
  if (D == stored_D) return rows;
  std::vector<double> out;
  for (size_t i = 0; i < rows.size(); ++i)
    if (static_cast<int64_t>(i) % D < stored_D) out.push_back(rows[i]);
  return out;
}

std::vector<double> LayerCase::AddedColumn(const std::vector<double>& rows) const {
  std::vector<double> out;
  for (size_t i = D - 1; i < rows.size(); i += D) out.push_back(rows[i]);
  return out;
}

absl::StatusOr<LayerCase> LoadLayerCase(const std::string& name) {
  const std::string path = "tests/golden/layer/" + name;
  LayerCase c;
  c.name = name;
  MOE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path + ".json"));
  c.info = nlohmann::json::parse(text);
  MOE_ASSIGN_OR_RETURN(const auto file, SafetensorsReader::Open(path + ".safetensors"));
  for (const auto& [tensor, info] : file->tensors()) {
    if (info.dtype == "I64") {
      MOE_ASSIGN_OR_RETURN(c.integer[tensor], file->ReadInts(tensor));
    } else {
      MOE_ASSIGN_OR_RETURN(c.real[tensor], file->ReadDoubles(tensor));
    }
  }
  c.D = c.stored_D = c.info["D"].get<int64_t>();
  c.F = c.info["F"].get<int64_t>();
  c.E = c.info["gate"]["E"].get<int64_t>();
  c.K = c.info["gate"]["K"].get<int64_t>();
  c.T = static_cast<int64_t>(c.integer.at("token_valid_T").size());
  if (c.real.count("router_bias_E")) FoldBias(&c);
  return c;
}

std::vector<Machine> Machines() {
  const auto reference = []() -> absl::StatusOr<std::unique_ptr<Device>> { return MakeReferenceDevice(); };
  const auto cpu = []() { return MakeCpuDevice(1); };
  return {{"reference_float64", reference, DType::kF64, 1e-12, 1e-2}, {"reference_float32", reference, DType::kF32, 1e-5, 1e-2}, {"cpu_float32", cpu, DType::kF32, 1e-5, 1e-2}};
}

Machine ForCase(Machine machine, const LayerCase& c) {
  if (c.name == "mixtral_collapse") machine.floor *= 10;
  return machine;
}

double ExpectClose(const std::string& what, const std::vector<double>& got, const std::vector<double>& want, const Machine& machine) {
  EXPECT_EQ(got.size(), want.size()) << what;
  double largest = machine.floor, worst = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    EXPECT_TRUE(std::isfinite(got[i])) << what << "[" << i << "] is " << got[i];
    largest = std::max(largest, std::abs(want[i]));
    worst = std::max(worst, std::abs(got[i] - want[i]));
  }
  EXPECT_LE(worst / largest, machine.tolerance) << what << " on " << machine.name << ", largest value " << largest;
  return worst / largest;
}

absl::Status Put(Device* device, const std::vector<double>& values, Out tensor) {
  if (tensor.size() != static_cast<int64_t>(values.size())) return Internal(values.size(), " values for ", tensor.DebugString());
  if (tensor.dtype() == DType::kF64) return device->CopyFromHost(tensor, values.data());
  const std::vector<float> f(values.begin(), values.end());
  return device->CopyFromHost(tensor, f.data());
}

absl::StatusOr<std::vector<int32_t>> GetIds(Device* device, In ids) {
  std::vector<int32_t> out(ids.size());
  MOE_RETURN_IF_ERROR(device->CopyToHost(out.data(), ids));
  return out;
}

}  // namespace moe::testing
