// Speed of the products and of attention beside the fused-multiply-add peak that is measured in the same run.
//
//   gemm_bench [--threads=1,2] [--isa=generic|avx2|avx512] [--only=grouped|gemm|attention] [--cpu-time] [--openblas] [--seconds=0.4]
//
// --seconds is how long each figure is looked for; the best run counts.
//
// --openblas adds what single-threaded calls of OpenBLAS from the same workers reach, a group (or an equal part of the
// rows) a call. It must be the build with locks (Debian: libopenblas0-pthread): the sequential build hands one scratch
// buffer to two threads that call it at the same time.
// --cpu-time counts the processor time of all threads, divided by their number, in place of the time on the clock: it
// says less about the balance between workers, but other programs on the machine disturb it less.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <cblas.h>

#include "core/base/random.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/thread_pool.h"

namespace moe {
namespace {

double Clock() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double ProcessorTime() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Bench {
  std::unique_ptr<Device> device;
  bool cpu_time = false, openblas = false;
  double seconds = 0.4;   // of looking for the best run of one figure
  double peak = 0;
  std::unique_ptr<ThreadPool> pool;   // of the calls of OpenBLAS
  std::vector<Buffer> buffers;

  double Now() const { return cpu_time ? ProcessorTime() / device->num_threads() : Clock(); }
  // A busy machine only ever shows less.
  void MeasurePeak() {
    for (int i = 0; i < 4; ++i) peak = std::max(peak, *device->MeasurePeakGflops());
  }

  TensorView Make(std::vector<int64_t> shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    buffers.push_back(*Buffer::Make(device.get(), n * 4));
    TensorView v(buffers.back().data(), DType::kF32, shape);
    for (int64_t i = 0; i < n; ++i) v.as<float>()[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
    return v;
  }

  template <typename F>
  double Seconds(F f) {
    (void)f();   // warm up
    double best = 1e9;
    const double start = Clock();
    for (int run = 0; run < 5 || Clock() - start < seconds; ++run) {
      const double t = Now();
      const absl::Status s = f();
      best = std::min(best, Now() - t);
      if (!s.ok()) { std::printf("%s\n", s.ToString().c_str()); return best; }
    }
    return best;
  }

  struct Product {
    bool ta, tb;
    int64_t m, n, k;
    const float *a, *b;
    int64_t lda, ldb;
    float beta;
    float* c;
    int64_t ldc;
  };
  void Openblas(double flops, const std::vector<Product>& products) {
    if (!openblas) return;
    Report("    OpenBLAS", flops, Seconds([&] {
      pool->ParallelFor(products.size(), [&](int64_t i) {
        const Product& p = products[i];
        if (p.m == 0) return;
        cblas_sgemm(CblasRowMajor, p.ta ? CblasTrans : CblasNoTrans, p.tb ? CblasTrans : CblasNoTrans, p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
      });
      return absl::OkStatus();
    }));
  }

  void Report(const char* what, double flops, double seconds) {
    std::printf("%-62s %9.3f ms %8.1f GFLOP/s %5.1f%%\n", what, seconds * 1e3, flops / seconds * 1e-9, 100 * flops / seconds * 1e-9 / peak);
    std::fflush(stdout);
  }

  void Gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k) {
    buffers.clear();
    const TensorView a = ta ? Make({k, m}) : Make({m, k}), b = tb ? Make({n, k}) : Make({k, n}), c = Make({m, n});
    char text[128];
    std::snprintf(text, sizeof(text), "gemm %c%c m %d n %d k %d", ta ? 'T' : 'N', tb ? 'T' : 'N', int(m), int(n), int(k));
    Report(text, 2.0 * m * n * k, Seconds([&] { return device->Gemm(ta, tb, 1, a, b, 0, c); }));
    std::vector<Product> parts;
    const int64_t rows = (m + device->num_threads() - 1) / device->num_threads();
    for (int64_t r = 0; r < m; r += rows)
      parts.push_back({ta, tb, std::min(rows, m - r), n, k, a.as<float>() + (ta ? r : r * k), b.as<float>(), a.stride(0), b.stride(0), 0, c.as<float>() + r * n, n});
    Openblas(2.0 * m * n * k, parts);
  }

  void Grouped(int64_t E, int64_t in, int64_t out, int64_t rows) {
    buffers.clear();
    const TensorView x = Make({rows, in}), w = Make({E, out, in}), y = Make({rows, out});
    std::vector<int64_t> offsets(E + 1);
    for (int64_t g = 0; g <= E; ++g) offsets[g] = rows * g / E;
    // Unequal groups, as a gate makes them.
    for (int64_t g = 1; g < E; ++g) offsets[g] += static_cast<int64_t>(RandomUniform(7, g) * rows / E * 0.5);
    const double flops = 2.0 * rows * in * out;
    char text[128];
    const auto name = [&](const char* form) { std::snprintf(text, sizeof(text), "grouped E %d rows %d w [%d,%d] %s", int(E), int(rows), int(out), int(in), form); return text; };
    std::vector<Product> forward, input, weight;
    for (int64_t g = 0; g < E; ++g) {
      const int64_t r = offsets[g], n = offsets[g + 1] - r;
      float *xg = x.as<float>() + r * in, *yg = y.as<float>() + r * out, *wg = w.as<float>() + g * out * in;
      forward.push_back({false, true, n, out, in, xg, wg, in, in, 0, yg, out});
      input.push_back({false, false, n, in, out, yg, wg, out, in, 0, xg, in});
      weight.push_back({true, false, out, in, n, yg, xg, out, in, 1, wg, in});
    }
    Report(name("forward"), flops, Seconds([&] { return device->GroupedGemm(GroupedForm::kForward, x, w, offsets, 0, y); }));
    Openblas(flops, forward);
    Report(name("input grad"), flops, Seconds([&] { return device->GroupedGemm(GroupedForm::kInputGrad, y, w, offsets, 0, x); }));
    Openblas(flops, input);
    Report(name("weight grad"), flops, Seconds([&] { return device->GroupedGemm(GroupedForm::kWeightGrad, y, x, offsets, 1, w); }));
    Openblas(flops, weight);
  }

  void Attention(int64_t B, int64_t S, int64_t H, int64_t G, int64_t h) {
    buffers.clear();
    AttentionShape s{B, S, H, G, h, 0.17};
    const TensorView qkv = Make({B * S, (H + 2 * G) * h}), o = Make({B * S, H * h}), lse = Make({B, H, S}), grad = Make({B * S, (H + 2 * G) * h});
    const TensorView q = qkv.Columns(0, H * h), k = qkv.Columns(H * h, G * h), v = qkv.Columns((H + G) * h, G * h);
    const TensorView dq = grad.Columns(0, H * h), dk = grad.Columns(H * h, G * h), dv = grad.Columns((H + G) * h, G * h);
    const double pairs = 0.5 * B * H * S * (S + 1.0) * h;
    char text[128];
    const auto name = [&](const char* form) { std::snprintf(text, sizeof(text), "attention B %d S %d H %d G %d h %d %s", int(B), int(S), int(H), int(G), int(h), form); return text; };
    Report(name("forward"), 4 * pairs, Seconds([&] { return device->AttentionForward(s, q, k, v, o, lse); }));
    Report(name("backward"), 10 * pairs, Seconds([&] { return device->AttentionBackward(s, q, k, v, o, lse, o, dq, dk, dv); }));
  }
};

Isa Parse(const std::string& name) {
  for (Isa isa : AvailableIsas()) {
    if (name == Name(isa)) return isa;
  }
  return BestIsa();
}

void Run(int threads, Isa isa, const std::string& only, bool cpu_time, bool openblas, double seconds) {
  Bench b;
  b.cpu_time = cpu_time, b.openblas = openblas, b.seconds = seconds;
  openblas_set_num_threads(1);
  b.pool = std::make_unique<ThreadPool>(threads);
  b.device = *MakeCpuDevice(threads, isa);
  b.MeasurePeak();
  std::printf("%s; peak %.1f GFLOP/s\n", b.device->Describe().c_str(), b.peak);
  if (only.empty() || only == "grouped") {
    b.Grouped(8, 512, 2048, 8192);
    b.Grouped(8, 256, 1024, 4096);
    b.Grouped(8, 512, 256, 4096);
    b.Grouped(8, 256, 1024, 8192);
    b.Grouped(8, 512, 256, 8192);
    b.Grouped(64, 512, 512, 8192);
    b.Grouped(64, 512, 512, 128);
    b.Grouped(8, 256, 1024, 8);
  }
  if (only.empty() || only == "gemm") {
    for (int form = 0; form < 3; ++form) b.Gemm(form == 2, form == 0, 1024, 1024, 1024);
    b.Gemm(false, true, 2048, 768, 256);
    b.Gemm(false, true, 2048, 2048, 256);
    b.Gemm(false, false, 2048, 256, 2048);
    b.Gemm(true, false, 2048, 256, 2048);
    b.Gemm(false, true, 4096, 8, 256);
    b.Gemm(true, false, 8, 256, 4096);
    b.Gemm(false, false, 4096, 256, 8);
    for (int m : {1, 2, 4, 6, 8, 12, 16, 24}) for (int tb : {1, 0}) b.Gemm(false, tb, m, 1024, 256);
  }
  if (only.empty() || only == "attention") {
    b.Attention(16, 256, 8, 4, 32);
    b.Attention(8, 256, 8, 8, 64);
    b.Attention(1, 1024, 8, 2, 128);
  }
  b.MeasurePeak();
  std::printf("peak again %.1f GFLOP/s\n\n", b.peak);
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  std::string threads = "1,2", isa, only;
  bool cpu_time = false, openblas = false;
  double seconds = 0.4;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--threads=", 0) == 0) threads = arg.substr(10);
    else if (arg.rfind("--isa=", 0) == 0) isa = arg.substr(6);
    else if (arg.rfind("--only=", 0) == 0) only = arg.substr(7);
    else if (arg == "--cpu-time") cpu_time = true;
    else if (arg == "--openblas") openblas = true;
    else if (arg.rfind("--seconds=", 0) == 0) seconds = std::atof(arg.c_str() + 10);
    else return std::printf("unknown argument %s\n", argv[i]), 1;
  }
  for (size_t at = 0; at < threads.size();) {
    const size_t comma = std::min(threads.find(',', at), threads.size());
    moe::Run(std::max(1, std::atoi(threads.substr(at, comma - at).c_str())), moe::Parse(isa), only, cpu_time, openblas, seconds);
    at = comma + 1;
  }
  return 0;
}
