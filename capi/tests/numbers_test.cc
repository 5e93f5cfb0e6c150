// The enumerations of the header against those inside: they are cast, not mapped.
#include "absl/status/status.h"
#include "capi/moe.h"
#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/comm/communicator.h"

#define SAME(outside, inside) static_assert(static_cast<int>(outside) == static_cast<int>(inside), #outside)
using absl::StatusCode;
SAME(MOE_OK, StatusCode::kOk);
SAME(MOE_CANCELLED, StatusCode::kCancelled);
SAME(MOE_UNKNOWN, StatusCode::kUnknown);
SAME(MOE_INVALID_ARGUMENT, StatusCode::kInvalidArgument);
SAME(MOE_DEADLINE_EXCEEDED, StatusCode::kDeadlineExceeded);
SAME(MOE_NOT_FOUND, StatusCode::kNotFound);
SAME(MOE_ALREADY_EXISTS, StatusCode::kAlreadyExists);
SAME(MOE_PERMISSION_DENIED, StatusCode::kPermissionDenied);
SAME(MOE_RESOURCE_EXHAUSTED, StatusCode::kResourceExhausted);
SAME(MOE_FAILED_PRECONDITION, StatusCode::kFailedPrecondition);
SAME(MOE_ABORTED, StatusCode::kAborted);
SAME(MOE_OUT_OF_RANGE, StatusCode::kOutOfRange);
SAME(MOE_UNIMPLEMENTED, StatusCode::kUnimplemented);
SAME(MOE_INTERNAL, StatusCode::kInternal);
SAME(MOE_UNAVAILABLE, StatusCode::kUnavailable);
SAME(MOE_DATA_LOSS, StatusCode::kDataLoss);
SAME(MOE_UNAUTHENTICATED, StatusCode::kUnauthenticated);
SAME(MOE_FLOAT32, moe::DType::kF32);
SAME(MOE_FLOAT64, moe::DType::kF64);
SAME(MOE_INT32, moe::DType::kI32);
SAME(MOE_INT64, moe::DType::kI64);
SAME(MOE_UINT8, moe::DType::kU8);
SAME(MOE_SUM, moe::ReduceOp::kSum);
SAME(MOE_MAX, moe::ReduceOp::kMax);
SAME(MOE_MIN, moe::ReduceOp::kMin);
SAME(0, moe::LogLevel::kDebug);
SAME(3, moe::LogLevel::kError);

int main() { return 0; }
