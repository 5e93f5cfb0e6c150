#include "capi/measure.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "capi/copies.h"
#include "capi/cores.h"
#include "capi/step_efficiency.h"
#include "core/comm/communicator.h"
#include "core/device/arena.h"
#include "core/device/device.h"
#include "core/plan/report/parameters.h"
#include "transport/inproc/inproc.h"

namespace moe::capi {
namespace {

// The median of the seconds that f takes, over as many calls as fit in `budget` seconds, at least 3.
template <typename F>
absl::StatusOr<double> MedianSeconds(double budget, F f) {
  using Clock = std::chrono::steady_clock;
  MOE_RETURN_IF_ERROR(f());   // pages and packing buffers are there afterwards
  std::vector<double> all;
  double sum = 0;
  while (all.size() < 3 || (sum < budget && all.size() < 1000)) {
    const auto begin = Clock::now();
    MOE_RETURN_IF_ERROR(f());
    all.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    sum += all.back();
  }
  std::nth_element(all.begin(), all.begin() + static_cast<int64_t>(all.size()) / 2, all.end());
  return all[all.size() / 2];
}

struct Rates { double gflops = 0, memory_gbs = 0; };

absl::StatusOr<Rates> MeasureDevice(const config::Config& c, Device* device) {
  Rates r;
  const config::ModelConfig& model = c.model();
  // One expert's rows of a micro-batch, and widths, no larger than what shows the rate.
  const int64_t tokens = std::max<int64_t>(1, c.train().micro_batch()) * c.train().seq_len();
  const int64_t rows = std::clamp<int64_t>(tokens * model.top_k() / model.num_global_experts(), 16, 512), in = std::min<int64_t>(model.d_model(), 1024), out = std::min<int64_t>(model.d_hidden(), 1024);
  Arena arena(device);
  MOE_ASSIGN_OR_RETURN(const TensorView x, arena.Make(DType::kF32, {rows, in}));
  MOE_ASSIGN_OR_RETURN(const TensorView w, arena.Make(DType::kF32, {out, in}));
  MOE_ASSIGN_OR_RETURN(const TensorView y, arena.Make(DType::kF32, {rows, out}));
  for (const TensorView& t : {x, w, y}) MOE_RETURN_IF_ERROR(device->Fill(t, 0.5));
  MOE_ASSIGN_OR_RETURN(const double product, MedianSeconds(0.2, [&] { return device->Gemm(false, true, 1, x, w, 0, y); }));
  r.gflops = 2e-9 * static_cast<double>(rows * in * out) / product;
  // Beyond the caches of this rank; reads two, writes one.
  const int64_t n = int64_t{8} << 20;
  MOE_ASSIGN_OR_RETURN(const TensorView a, arena.Make(DType::kF32, {n}));
  MOE_ASSIGN_OR_RETURN(const TensorView b, arena.Make(DType::kF32, {n}));
  for (const TensorView& t : {a, b}) MOE_RETURN_IF_ERROR(device->Fill(t, 0.5));
  MOE_ASSIGN_OR_RETURN(const double copy, MedianSeconds(0.2, [&] { return device->Axpy(1e-3, a, b); }));
  r.memory_gbs = 12e-9 * static_cast<double>(n) / copy;
  return r;
}

// Two ranks as threads: all-to-all of a few bytes and of megabytes.
absl::Status MeasureMessages(Machine* m) {
  auto world = std::make_shared<InprocWorld>(2);
  const auto rank = [&](int64_t me, double* latency, double* bandwidth) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(const auto transport, MakeInprocTransport(world, me));
    const std::vector<int64_t> both = {0, 1};
    MOE_ASSIGN_OR_RETURN(const auto group, transport->CreateGroup(1, both));
    const auto gather = [&](int64_t bytes, int64_t times) -> absl::StatusOr<double> {
      std::vector<char> send(bytes), recv(2 * bytes);
      MOE_RETURN_IF_ERROR(AllGather(group.get(), send.data(), bytes, recv.data()));
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t i = 0; i < times; ++i) MOE_RETURN_IF_ERROR(AllGather(group.get(), send.data(), bytes, recv.data()));
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / static_cast<double>(times);
    };
    constexpr int64_t kLarge = int64_t{4} << 20;
    MOE_ASSIGN_OR_RETURN(const double small, gather(64, 300));
    MOE_ASSIGN_OR_RETURN(const double large, gather(kLarge, 10));
    *latency = small * 1e6;
    *bandwidth = 1e-9 * static_cast<double>(kLarge) / std::max(large - small, 1e-7);
    return transport->Shutdown();
  };
  double latency[2] = {0, 0}, bandwidth[2] = {0, 0};
  absl::Status other;
  std::thread second([&] { other = rank(1, &latency[1], &bandwidth[1]); });
  const absl::Status first = rank(0, &latency[0], &bandwidth[0]);
  second.join();
  MOE_RETURN_IF_ERROR(first);
  MOE_RETURN_IF_ERROR(other);
  m->latency_us = latency[0];
  m->message_us = latency[0] / 2;
  m->bandwidth_gbs = bandwidth[0];
  return absl::OkStatus();
}

// The same on `copies` devices at once, as ranks that share the machine find it: the mean rate.
absl::Status MeasureDevices(const config::Config& c, int64_t copies, Machine* m) {
  const auto measure = [&](int64_t) -> absl::StatusOr<Rates> {
    MOE_ASSIGN_OR_RETURN(const auto device, MakeCpuDevice(static_cast<int>(m->threads)));
    return MeasureDevice(c, device.get());
  };
  MOE_ASSIGN_OR_RETURN(const std::vector<Rates> each, RunCopies<Rates>(copies, measure));
  m->gflops = m->memory_gbs = 0;
  for (const Rates& r : each) {
    m->gflops += r.gflops / static_cast<double>(copies);
    m->memory_gbs += r.memory_gbs / static_cast<double>(copies);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Machine> MeasureMachine(const config::Config& c) {
  Machine m;
  m.shared_cores = UsableCores();
  m.threads = c.threads() > 0 ? c.threads() : std::max<int64_t>(1, m.shared_cores / c.ranks());
  // More would take turns, which the simulated step accounts for.
  const int64_t copies = std::max<int64_t>(1, std::min<int64_t>(c.ranks(), m.shared_cores / m.threads));
  MOE_RETURN_IF_ERROR(MeasureDevices(c, copies, &m));
  MOE_RETURN_IF_ERROR(MeasureMessages(&m));
  MOE_ASSIGN_OR_RETURN(const std::optional<double> efficiency, StepEfficiency(c, m, copies));
  m.source = absl::StrFormat("measured here: %.0f GFLOP/s, %.1f GB/s memory of a rank of %d threads, %.1f us and %.1f GB/s between ranks; %d cores for all ranks", m.gflops,
                             m.memory_gbs, m.threads, m.latency_us, m.bandwidth_gbs, m.shared_cores);
  if (!efficiency) {
    absl::StrAppend(&m.source, "; no step was tried: a short form of the model is too large here, or cannot be trained");
    return m;
  }
  absl::StrAppendFormat(&m.source, "; steps of a short model reach %.0f%% of what these rates say", 100 * *efficiency);
  m.gflops *= *efficiency;
  m.memory_gbs *= *efficiency;
  return m;
}

}  // namespace moe::capi
