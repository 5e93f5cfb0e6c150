// The block partition: rank r of the expert-parallel group holds experts r E/ep .. (r+1) E/ep - 1.
#ifndef MOE_EXPERTS_PARTITION_BLOCK_PARTITION_H_
#define MOE_EXPERTS_PARTITION_BLOCK_PARTITION_H_

#include <memory>

#include "core/moe/partition.h"

namespace moe {

std::unique_ptr<Partition> MakeBlockPartition();

}  // namespace moe
#endif  // MOE_EXPERTS_PARTITION_BLOCK_PARTITION_H_
