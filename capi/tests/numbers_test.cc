// The enumerations of the header against those inside: they are cast, not mapped.
#include "absl/status/status.h"
#include "capi/moe.h"
#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/comm/communicator.h"
#include "core/topology/mesh.h"

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
SAME(MOE_AXIS_TP, moe::Axis::kTp);
SAME(MOE_AXIS_CP, moe::Axis::kCp);
SAME(MOE_AXIS_DP, moe::Axis::kDp);
SAME(MOE_AXIS_PP, moe::Axis::kPp);
SAME(MOE_AXIS_ETP, moe::Axis::kEtp);
SAME(MOE_AXIS_EP, moe::Axis::kEp);
SAME(MOE_AXIS_EDP, moe::Axis::kEdp);
SAME(MOE_GROUP_TP, moe::GroupKind::kTp);
SAME(MOE_GROUP_CP, moe::GroupKind::kCp);
SAME(MOE_GROUP_DP, moe::GroupKind::kDp);
SAME(MOE_GROUP_PP, moe::GroupKind::kPp);
SAME(MOE_GROUP_DP_CP, moe::GroupKind::kDpCp);
SAME(MOE_GROUP_ETP, moe::GroupKind::kEtp);
SAME(MOE_GROUP_EP, moe::GroupKind::kEp);
SAME(MOE_GROUP_EDP, moe::GroupKind::kEdp);
SAME(MOE_GROUP_STAGE, moe::GroupKind::kStage);
SAME(MOE_GROUP_REPLICA, moe::GroupKind::kReplica);
SAME(MOE_GROUP_ENDS, moe::GroupKind::kEnds);
static_assert(moe::kGroupKinds.size() == MOE_GROUP_ENDS + 1, "every kind has a number");
SAME(0, moe::LogLevel::kDebug);
SAME(3, moe::LogLevel::kError);

int main() { return 0; }
