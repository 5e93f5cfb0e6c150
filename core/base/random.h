// Counter-based random numbers: value = f(seed, stream name, element index), so any rank can make any
// slice of a tensor without having made the rest. Philox4x32-10 (Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#ifndef MOE_CORE_BASE_RANDOM_H_
#define MOE_CORE_BASE_RANDOM_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace moe {

// One Philox4x32-10 block.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// 64-bit key of a stream: FNV-1a of the name mixed with the seed. Stable for ever (checkpoints and
// golden values depend on it).
uint64_t StreamKey(uint64_t seed, std::string_view name);

// 64 random bits number `index` of the stream.
uint64_t RandomBits(uint64_t key, uint64_t index);
// Uniform in [0, 1), 53 bits.
double RandomUniform(uint64_t key, uint64_t index);
// Standard normal by Box-Muller in float64 (one block per element: element i never depends on i-1).
double RandomNormal(uint64_t key, uint64_t index);
// Uniform integer in [0, n), n > 0, by 128-bit multiplication (bias below 2^-64 * n).
uint64_t RandomBelow(uint64_t key, uint64_t index, uint64_t n);

}  // namespace moe
#endif  // MOE_CORE_BASE_RANDOM_H_
