// A world of one rank: every collective is local, and no network library is needed.
#ifndef MOE_TRANSPORT_SELF_H_
#define MOE_TRANSPORT_SELF_H_

#include <memory>

#include "core/comm/communicator.h"

namespace moe {

std::unique_ptr<Transport> MakeSelfTransport();

}  // namespace moe
#endif  // MOE_TRANSPORT_SELF_H_
