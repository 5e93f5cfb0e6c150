// inout[i] = inout[i] op in[i], element by element in the element type. Called for the members in rank order, so
// that the bits do not depend on the algorithm or the transport. kU8 sums wrap; max and min keep a NaN once there is one.
#ifndef MOE_TRANSPORT_REDUCE_H_
#define MOE_TRANSPORT_REDUCE_H_

#include <cstdint>

#include "core/base/dtype.h"
#include "core/comm/communicator.h"

namespace moe {

void ReduceInto(void* inout, const void* in, int64_t count, DType dtype, ReduceOp op);

}  // namespace moe
#endif  // MOE_TRANSPORT_REDUCE_H_
