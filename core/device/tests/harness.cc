#include "core/device/tests/harness.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_replace.h"
#include "core/base/random.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/rows.h"

namespace moe::testing {
namespace {

// What padding and unwritten integers hold: a NaN in float32 and in float64, an impossible id in int32.
constexpr uint8_t kPattern = 0xFF;

template <typename T>
std::vector<double> ReadAs(const TensorView& v) {
  std::vector<double> out;
  for (int64_t r = 0; r < NumRows(v); ++r)
    for (int64_t i = 0; i < RowLength(v); ++i) out.push_back(static_cast<double>(Row<T>(v, r)[i]));
  return out;
}
std::vector<double> Read(const TensorView& v) {
  switch (v.dtype()) {
    case DType::kF32: return ReadAs<float>(v);
    case DType::kF64: return ReadAs<double>(v);
    case DType::kI32: return ReadAs<int32_t>(v);
    case DType::kI64: return ReadAs<int64_t>(v);
    case DType::kU8: return ReadAs<uint8_t>(v);
  }
  return {};
}

template <typename T>
void WriteAs(const TensorView& v, const std::vector<double>& values) {
  size_t at = 0;
  for (int64_t r = 0; r < NumRows(v); ++r)
    for (int64_t i = 0; i < RowLength(v); ++i) Row<T>(v, r)[i] = static_cast<T>(values[at++]);
}
void Write(const TensorView& v, const std::vector<double>& values) {
  ASSERT_EQ(v.size(), static_cast<int64_t>(values.size()));
  switch (v.dtype()) {
    case DType::kF32: return WriteAs<float>(v, values);
    case DType::kF64: return WriteAs<double>(v, values);
    case DType::kI32: return WriteAs<int32_t>(v, values);
    case DType::kI64: return WriteAs<int64_t>(v, values);
    case DType::kU8: return WriteAs<uint8_t>(v, values);
  }
}

}  // namespace

std::vector<Implementation> Implementations() {
  const auto reference = [] { return absl::StatusOr<std::unique_ptr<Device>>(MakeReferenceDevice()); };
  std::vector<Implementation> all;
  all.push_back({"reference_f32", DType::kF32, {reference}});
  all.push_back({"reference_f64", DType::kF64, {reference}});
  // Three workers are more than this operation may have tasks, and more than the machine may have cores.
  for (Isa isa : AvailableIsas()) {
    const auto cpu = [isa](int threads) { return [=] { return MakeCpuDevice(threads, isa); }; };
    all.push_back({absl::StrCat("cpu_", Name(isa)), DType::kF32, {cpu(1), cpu(2), cpu(3)}});
  }
  all.push_back({"cpu_f64", DType::kF64, {[] { return MakeCpuDevice(1); }, [] { return MakeCpuDevice(2); }}});
  return all;
}

std::string ImplementationName(const ::testing::TestParamInfo<Implementation>& info) { return info.param.name; }

const std::vector<int64_t>& OddSizes() {
  static const std::vector<int64_t>& sizes = *new std::vector<int64_t>{0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 100, 257};
  return sizes;
}

void DeviceTest::SetUp() {
  devices_.push_back(MakeReferenceDevice());
  for (const auto& make : GetParam().makers) {
    absl::StatusOr<std::unique_ptr<Device>> d = make();
    ASSERT_TRUE(d.ok()) << d.status();
    devices_.push_back(*std::move(d));
  }
}

Operand DeviceTest::Make(const std::vector<int64_t>& shape, DType tested, DType reference) {
  Operand o;
  o.memory = std::make_shared<std::vector<Buffer>>();
  for (size_t i = 0; i < devices_.size(); ++i) {
    const DType t = i == 0 ? reference : tested;
    std::vector<int64_t> padded = shape;
    if (shape.size() == 2) padded.back() += pad_;
    int64_t n = SizeOf(t);
    for (int64_t d : padded) n *= d;
    // No padding after the last row: a sanitizer then sees what is read or written past it.
    if (shape.size() == 2 && n > 0) n -= pad_ * SizeOf(t);
    absl::StatusOr<Buffer> b = Buffer::Make(devices_[i].get(), n);
    EXPECT_TRUE(b.ok()) << b.status();
    std::memset(b->data(), kPattern, n);
    o.views.push_back(TensorView(b->data(), t, padded).Columns(0, shape.back()));
    o.memory->push_back(*std::move(b));
  }
  return o;
}

Operand DeviceTest::Values(const std::vector<int64_t>& shape, const std::vector<double>& values) {
  Operand o = Make(shape, dtype(), DType::kF64);
  std::vector<double> rounded;
  for (double v : values) rounded.push_back(static_cast<float>(v));
  for (const TensorView& v : o.views) Write(v, rounded);
  return o;
}

Operand DeviceTest::Random(const std::vector<int64_t>& shape, double stddev, double mean) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<double> values(n);
  ++seed_;
  for (int64_t i = 0; i < n; ++i) values[i] = mean + stddev * moe::RandomNormal(seed_, i);
  return Values(shape, values);
}

Operand DeviceTest::Poison(const std::vector<int64_t>& shape) { return Make(shape, dtype(), DType::kF64); }
Operand DeviceTest::PoisonInts(const std::vector<int64_t>& shape) { return Make(shape, DType::kI32, DType::kI32); }

Operand DeviceTest::Ints(const std::vector<int64_t>& shape, const std::vector<int64_t>& values, DType dtype) {
  Operand o = Make(shape, dtype, dtype);
  for (const TensorView& v : o.views) Write(v, std::vector<double>(values.begin(), values.end()));
  return o;
}

Operand DeviceTest::Absent() {
  Operand o;
  o.views.resize(devices_.size());
  return o;
}

std::vector<int64_t> DeviceTest::RandomInts(int64_t n, int64_t low, int64_t high) {
  std::vector<int64_t> out(n);
  ++seed_;
  for (int64_t i = 0; i < n; ++i) out[i] = low + static_cast<int64_t>(RandomBelow(seed_, i, high - low));
  return out;
}
double DeviceTest::Uniform() { return RandomUniform(++seed_, 0); }

void DeviceTest::Run(const std::function<absl::Status(Device*, const View&)>& op) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const absl::Status s = op(devices_[i].get(), [i](const Operand& o) -> const TensorView& { return o.views[i]; });
    EXPECT_TRUE(s.ok()) << "device " << i << ": " << s;
  }
}

std::vector<double> DeviceTest::RunScalar(const std::function<absl::StatusOr<double>(Device*, const View&)>& op) {
  std::vector<double> out;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const absl::StatusOr<double> s = op(devices_[i].get(), [i](const Operand& o) -> const TensorView& { return o.views[i]; });
    EXPECT_TRUE(s.ok()) << "device " << i << ": " << s.status();
    out.push_back(s.ok() ? *s : std::numeric_limits<double>::quiet_NaN());
    if (i > 1 && std::memcmp(&out[1], &out[i], sizeof(double)) != 0) ADD_FAILURE() << "device " << i << " gives " << out[i] << ", device 1 " << out[1];
  }
  return out;
}

void DeviceTest::ExpectRefused(const std::function<absl::Status(Device*, const View&)>& op, const std::vector<std::string>& parts) {
  std::string first;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const absl::Status s = op(devices_[i].get(), [i](const Operand& o) -> const TensorView& { return o.views[i]; });
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << "device " << i << ": " << s;
    const std::string text = absl::StrReplaceAll(s.message(), {{"float64", "float32"}});
    if (i == 0) first = text;
    EXPECT_EQ(text, first) << "device " << i;
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is missing in: " << text;
  }
}

std::vector<double> DeviceTest::Got(const Operand& o, size_t device) { return Read(o.views[device]); }

void DeviceTest::ExpectClose(const char* name, const Operand& o, double tol) {
  if (dtype() == DType::kF64) tol = 1e-12;
  const std::vector<double> wanted = Read(o.views[0]), got = Read(o.views[1]);
  int shown = 0;
  for (size_t i = 0; i < wanted.size() && shown < 3; ++i) {
    if (std::abs(got[i] - wanted[i]) <= tol * (1 + std::abs(wanted[i]))) continue;   // false for NaN
    ADD_FAILURE() << name << "[" << i << "] of " << o.views[1].DebugString() << " is " << got[i] << ", wanted " << wanted[i] << ", tolerance " << tol;
    ++shown;
  }
  ExpectSameBits(name, o);
  ExpectPaddingIntact(name, o);
}

void DeviceTest::ExpectEqual(const char* name, const Operand& o) {
  const std::vector<double> wanted = Read(o.views[0]), got = Read(o.views[1]);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    ADD_FAILURE() << name << "[" << i << "] of " << o.views[1].DebugString() << " is " << got[i] << ", wanted " << wanted[i];
    break;
  }
  ExpectSameBits(name, o);
  ExpectPaddingIntact(name, o);
}

void DeviceTest::ExpectSameBits(const char* name, const Operand& o) {
  for (size_t d = 2; d < o.views.size(); ++d) {
    for (int64_t r = 0; r < NumRows(o.views[1]); ++r) {
      const size_t bytes = RowLength(o.views[1]) * SizeOf(o.views[1].dtype());
      const auto row = [&](size_t i) { return static_cast<const char*>(o.views[i].data()) + (o.views[i].rank() > 1 ? r * o.views[i].stride(o.views[i].rank() - 2) * SizeOf(o.views[i].dtype()) : 0); };
      if (bytes == 0 || std::memcmp(row(1), row(d), bytes) == 0) continue;
      ADD_FAILURE() << name << ": row " << r << " of " << o.views[1].DebugString() << " has other bits on device " << d << " (" << devices_[d]->num_threads()
                    << " threads) than on device 1 (" << devices_[1]->num_threads() << " threads)";
      break;
    }
  }
}

void DeviceTest::ExpectPaddingIntact(const char* name, const Operand& o) {
  const TensorView& v = o.views[1];
  if (v.rank() != 2) return;
  const int64_t size = SizeOf(v.dtype());
  for (int64_t r = 0; r + 1 < v.dim(0); ++r) {
    const uint8_t* begin = static_cast<const uint8_t*>(v.data()) + (r * v.stride(0) + v.dim(1)) * size;
    for (const uint8_t* p = begin; p < static_cast<const uint8_t*>(v.data()) + (r + 1) * v.stride(0) * size; ++p)
      if (*p != kPattern) {
        ADD_FAILURE() << name << ": padding after row " << r << " of " << v.DebugString() << " was written";
        return;
      }
  }
}

void DeviceTest::ForShapes(const std::vector<int64_t>& rows, const std::vector<int64_t>& columns, const std::function<void(int64_t, int64_t)>& body) {
  int64_t i = 0;
  for (int64_t c : columns) {
    for (int64_t r : rows) {
      pad_ = ++i % 2 ? 0 : 3;
      SCOPED_TRACE(absl::StrCat("rows ", r, ", columns ", c, ", padding ", pad_, ", seed ", seed_));
      body(r, c);
    }
  }
  pad_ = 0;
}

}  // namespace moe::testing
