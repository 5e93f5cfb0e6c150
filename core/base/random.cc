#include "core/base/random.h"

#include <cmath>

namespace moe {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u, kW0 = 0x9E3779B9u, kW1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kM0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kM1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += kW0;
    k[1] += kW1;
  }
  return c;
}

uint64_t StreamKey(uint64_t seed, std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (unsigned char ch : name) h = (h ^ ch) * 0x100000001b3ull;
  // The finaliser of splitmix64 spreads the seed over all bits before it meets the name.
  uint64_t z = seed + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return h ^ (z ^ (z >> 31));
}

namespace {
std::array<uint32_t, 4> Block(uint64_t key, uint64_t index) {
  return Philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}
double Unit(uint32_t hi, uint32_t lo) {
  return static_cast<double>(((static_cast<uint64_t>(hi) << 32) | lo) >> 11) * 0x1.0p-53;
}
}  // namespace

uint64_t RandomBits(uint64_t key, uint64_t index) {
  const auto b = Block(key, index);
  return (static_cast<uint64_t>(b[0]) << 32) | b[1];
}

double RandomUniform(uint64_t key, uint64_t index) {
  const auto b = Block(key, index);
  return Unit(b[0], b[1]);
}

double RandomNormal(uint64_t key, uint64_t index) {
  const auto b = Block(key, index);
  const double u = 1.0 - Unit(b[0], b[1]);  // (0, 1]: the logarithm is finite
  const double v = Unit(b[2], b[3]);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925286766559 * v);
}

uint64_t RandomBelow(uint64_t key, uint64_t index, uint64_t n) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(RandomBits(key, index)) * n) >> 64);
}

}  // namespace moe
