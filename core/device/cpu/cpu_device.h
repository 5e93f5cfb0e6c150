// The fast implementation of Device for float32 on the host. It starts from the reference: an operation that has no
// override here, and everything in float64, runs there. Each override stands in the file named after its operation,
// checks its operands with core/device/check.h as the reference does, cuts its work by shape alone into tasks for the
// pool, and runs the vector kernels of the instruction set that was chosen when the device was made.
#ifndef MOE_CORE_DEVICE_CPU_CPU_DEVICE_H_
#define MOE_CORE_DEVICE_CPU_CPU_DEVICE_H_

#include <memory>
#include <string>

#include "core/device/cpu/isa.h"
#include "core/device/cpu/kernels.h"
#include "core/device/cpu/matmul.h"
#include "core/device/cpu/thread_pool.h"
#include "core/device/reference/reference_device.h"

namespace moe {

class CpuDevice : public ReferenceDevice {
 public:
  // `isa` must be one of AvailableIsas().
  CpuDevice(int threads, Isa isa);

  std::string name() const override { return "cpu"; }
  std::string Describe() const override;
  int num_threads() const override { return pool_.threads(); }

  absl::Status Gemm(bool trans_a, bool trans_b, double alpha, In a, In b, double beta, Out c) override;
  absl::Status GroupedGemm(GroupedForm form, In a, In b, absl::Span<const int64_t> offsets, double beta, Out c) override;
  absl::Status GroupedBias(In b_eO, absl::Span<const int64_t> offsets, Out y_RO) override;
  absl::Status GroupedBiasGrad(In dy_RO, absl::Span<const int64_t> offsets, Out db_eO) override;

  absl::Status ActivationForward(Activation kind, In h_RH, Out a_RF) override;
  absl::Status ActivationBackward(Activation kind, In h_RH, In da_RF, Out dh_RH) override;

  absl::StatusOr<double> MeasurePeakGflops() override;

 private:
  const Isa isa_;
  const Kernels& kernels_;
  ThreadPool pool_;
  MatMulRunner matmul_;
};

// As MakeCpuDevice (core/device/device.h), with the instruction set given instead of the best one; INVALID_ARGUMENT
// when this machine lacks it.
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(int threads, Isa isa);

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_CPU_DEVICE_H_
