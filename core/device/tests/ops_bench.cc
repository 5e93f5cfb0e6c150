// Milliseconds and GB/s of the memory-bound operations of the CPU device at the shapes of the default model.
//
//   ops_bench [threads] [tokens] [part of a name]
//
// GB/s counts every operand that is read and every one that is written once. The best of many runs is printed: other
// work on the machine only ever makes a run slower.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "core/base/random.h"
#include "core/device/device.h"

namespace moe {
namespace {

class Bench {
 public:
  Bench(Device* device, const char* filter) : device_(device), filter_(filter) {}

  TensorView Floats(std::vector<int64_t> shape, double stddev = 1, double mean = 0) {
    TensorView v = Make(DType::kF32, std::move(shape));
    Check(device_->RandomNormal(v, ++seed_, 0, mean, stddev));
    return v;
  }
  // Values in [0, high).
  TensorView Ids(std::vector<int64_t> shape, int64_t high) {
    TensorView v = Make(DType::kI32, std::move(shape));
    for (int64_t i = 0; i < v.size(); ++i) v.as<int32_t>()[i] = static_cast<int32_t>(RandomBelow(7, i, high));
    return v;
  }
  // Every number below n once, in random order.
  TensorView Permutation(std::vector<int64_t> shape, int64_t n) {
    TensorView v = Make(DType::kI32, std::move(shape));
    for (int64_t i = 0; i < n; ++i) v.as<int32_t>()[i] = static_cast<int32_t>(i);
    for (int64_t i = n; i > 1; --i) std::swap(v.as<int32_t>()[i - 1], v.as<int32_t>()[RandomBelow(8, i, i)]);
    return v;
  }

  // `bytes` move per run; a run is repeated for about a fifth of a second.
  void Run(const char* name, int64_t bytes, const std::function<absl::Status()>& op) {
    if (filter_ && !std::strstr(name, filter_)) return;
    using Clock = std::chrono::steady_clock;
    double best = 1e30, total = 0;
    int runs = 0;
    for (; runs < 5 || (total < 0.2 && runs < 2000); ++runs) {
      const auto start = Clock::now();
      Check(op());
      const double s = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::min(best, s);
      total += s;
    }
    std::printf("%-28s best %8.3f ms  mean %8.3f ms  %7.1f GB/s\n", name, best * 1e3, total / runs * 1e3, 1e-9 * static_cast<double>(bytes) / best);
  }

 private:
  static void Check(const absl::Status& s) {
    if (s.ok()) return;
    std::fprintf(stderr, "%s\n", std::string(s.message()).c_str());
    std::exit(1);
  }
  TensorView Make(DType dtype, std::vector<int64_t> shape) {
    int64_t n = SizeOf(dtype);
    for (int64_t d : shape) n *= d;
    absl::StatusOr<Buffer> b = Buffer::Make(device_, n);
    Check(b.status());
    memory_.push_back(*std::move(b));
    return TensorView(memory_.back().data(), dtype, shape);
  }

  Device* device_;
  const char* filter_;
  uint64_t seed_ = 1;
  std::vector<Buffer> memory_;
};

void Elementwise(Device* d, Bench* b) {
  const int64_t n = 13 << 20, bytes = n * 4;   // the parameters of the default model
  const TensorView x = b->Floats({n}), y = b->Floats({n});
  b->Run("Fill 13M", bytes, [&] { return d->Fill(y, 0); });
  b->Run("Copy 13M", 2 * bytes, [&] { return d->Copy(x, y); });
  b->Run("Scale 13M", 2 * bytes, [&] { return d->Scale(y, 0.999); });
  b->Run("Axpy 13M", 3 * bytes, [&] { return d->Axpy(0.5, x, y); });
  b->Run("Sum 13M", bytes, [&] { return d->Sum(x).status(); });
  b->Run("SumSquares 13M", bytes, [&] { return d->SumSquares(x).status(); });
  b->Run("RandomNormal 1M", 4 << 20, [&] { return d->RandomNormal(y.Rows(0, 1 << 20), 3, 0, 0, 0.02); });
  const TensorView m = b->Floats({n}, 0), v = b->Floats({n}, 0);
  AdamWStep step;
  step.lr = 1e-4;
  step.weight_decay = 0.1;
  b->Run("AdamW 13M", 7 * bytes, [&] { return d->AdamW(step, x, y, m, v); });
  b->Run("Sgd momentum 13M", 5 * bytes, [&] { return d->Sgd(1e-4, 0.9, 0.1, 1, x, y, m); });
  b->Run("Sgd 13M", 3 * bytes, [&] { return d->Sgd(1e-4, 0, 0.1, 1, x, y, TensorView()); });
}

void Rows(Device* d, Bench* b, int64_t T, int64_t D) {
  const int64_t row = T * D * 4;
  const TensorView x = b->Floats({T, D}), w = b->Floats({D}), y = b->Floats({T, D}), rstd = b->Floats({T}), dy = b->Floats({T, D}), dx = b->Floats({T, D}), dw = b->Floats({D});
  b->Run("RmsNormForward", 2 * row, [&] { return d->RmsNormForward(x, w, 1e-5, y, rstd); });
  b->Run("RmsNormBackward", 3 * row, [&] { return d->RmsNormBackward(x, w, rstd, dy, dx, false, dw); });
  b->Run("RmsNormBackward add", 4 * row, [&] { return d->RmsNormBackward(x, w, rstd, dy, y, true, dw); });
  const TensorView table = b->Floats({256, D}), ids = b->Ids({T}, 256), large = b->Floats({32000, D}), many = b->Ids({T}, 32000);
  b->Run("EmbeddingForward V=256", row, [&] { return d->EmbeddingForward(ids, table, y); });
  b->Run("EmbeddingBackward V=256", row, [&] { return d->EmbeddingBackward(ids, dy, table); });
  b->Run("EmbeddingForward V=32000", 2 * row, [&] { return d->EmbeddingForward(many, large, y); });
  b->Run("EmbeddingBackward V=32000", 3 * row, [&] { return d->EmbeddingBackward(many, dy, large); });
  const int64_t S = 256, h = 32;
  const TensorView qkv = b->Floats({T, D + 2 * D / 2}), cosines = b->Floats({S, h / 2}), sines = b->Floats({S, h / 2}), pos = b->Ids({T}, S);
  b->Run("Rotary q and k", 2 * row * 3 / 2, [&] { return d->Rotary(qkv.Columns(0, D + D / 2), h, pos, cosines, sines, false); });
  b->Run("ColumnSum TxD", row, [&] { return d->ColumnSum(x, dw, false); });
}

void Gates(Device* d, Bench* b, int64_t T, int64_t E, int64_t K) {
  char name[64];
  const auto run = [&](const char* op, int64_t floats, const std::function<absl::Status()>& fn) {
    std::snprintf(name, sizeof(name), "%s E=%d K=%d", op, static_cast<int>(E), static_cast<int>(K));
    b->Run(name, floats * T * 4, fn);
  };
  const TensorView l = b->Floats({T, E}), p = b->Floats({T, E}), lse = b->Floats({T}), dp = b->Floats({T, E}), c = b->Floats({E}), ids = b->Ids({T, K}, E);
  const TensorView raw = b->Floats({T, K}, 0.01, 0.5), wk = b->Floats({T, K}), dwk = b->Floats({T, K});
  run("Softmax", 2 * E, [&] { return d->Softmax(l, p, lse); });
  run("SoftmaxBackward", 3 * E, [&] { return d->SoftmaxBackward(p, dp, dp); });
  run("TopK", E + K, [&] { return d->TopK(p, ids); });
  run("GatherColumns", 3 * K, [&] { return d->GatherColumns(p, ids, wk); });
  run("ScatterColumns", 4 * K, [&] { return d->ScatterColumns(wk, ids, dp); });
  run("NormalizeRows", 2 * K, [&] { return d->NormalizeRows(raw, 1e-20, 1, wk); });
  run("NormalizeRowsBackward", 3 * K, [&] { return d->NormalizeRowsBackward(raw, 1e-20, 1, wk, dwk); });
  run("AddRow", 2 * E, [&] { return d->AddRow(c, 1e-3, p); });
  run("AddScaledRows", 3 * E, [&] { return d->AddScaledRows(lse, l, 1e-6, p); });
  run("ColumnSum", E, [&] { return d->ColumnSum(l, c, false); });
}

void Permute(Device* d, Bench* b, int64_t T, int64_t D, int64_t K) {
  const int64_t row = D * 4, N = T * K;
  const TensorView x = b->Floats({T, D}), rows = b->Floats({N, D}), out = b->Floats({N, D}), y = b->Floats({T, D}), w = b->Floats({T, K}), dw = b->Floats({T, K});
  const TensorView token = b->Ids({N}, T), pos = b->Permutation({T, K}, N);
  b->Run("GatherRows", 2 * N * row, [&] { return d->GatherRows(x, token, out); });
  b->Run("Combine", (N + T) * row, [&] { return d->Combine(rows, pos, w, y, false); });
  b->Run("Combine add", (N + 2 * T) * row, [&] { return d->Combine(rows, pos, w, y, true); });
  b->Run("CombineBackward", (2 * N + T) * row, [&] { return d->CombineBackward(rows, pos, w, y, out, dw); });
}

void Losses(Device* d, Bench* b, int64_t T) {
  for (const auto& [rows, V] : {std::make_pair(T, int64_t{256}), std::make_pair(int64_t{131}, int64_t{32000})}) {
    char name[64];
    const TensorView logits = b->Floats({rows, V}), labels = b->Ids({rows}, V), nll = b->Floats({rows});
    std::snprintf(name, sizeof(name), "CrossEntropy %dx%d", static_cast<int>(rows), static_cast<int>(V));
    b->Run(name, rows * V * 4, [&] { return d->CrossEntropy(logits, labels, nll, false, 1); });
    std::snprintf(name, sizeof(name), "CrossEntropy %dx%d grad", static_cast<int>(rows), static_cast<int>(V));
    b->Run(name, 2 * rows * V * 4, [&] { return d->CrossEntropy(logits, labels, nll, true, 1); });
  }
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t T = argc > 2 ? std::atoll(argv[2]) : 4096;
  absl::StatusOr<std::unique_ptr<moe::Device>> device = moe::MakeCpuDevice(threads);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  std::printf("%s; T=%lld D=256\n", (*device)->Describe().c_str(), static_cast<long long>(T));
  moe::Bench bench(device->get(), argc > 3 ? argv[3] : nullptr);
  moe::Elementwise(device->get(), &bench);
  moe::Rows(device->get(), &bench, T, 256);
  moe::Gates(device->get(), &bench, T, 8, 2);
  moe::Gates(device->get(), &bench, T, 64, 8);
  moe::Permute(device->get(), &bench, T, 256, 2);
  moe::Losses(device->get(), &bench, T);
  return 0;
}
