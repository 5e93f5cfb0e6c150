// The 64 bits by which messages are matched, always with an exact mask. A message is told apart by epoch, group, sender
// and either its place in a collective (sequence, phase) or the caller's tag, so that operations in flight, groups
// and whole generations of groups never take each other's data.
#ifndef MOE_TRANSPORT_TAG_H_
#define MOE_TRANSPORT_TAG_H_

#include <cstdint>

namespace moe {

//  63..62 class | 61..60 epoch | 59..44 group number | 43..28 sender (global rank) | 27..0 by class
enum class TagClass : uint64_t { kCollective = 0, kUser = 1, kCreateGroup = 2, kHello = 3 };

constexpr int64_t kMaxWorldSize = int64_t{1} << 16;
constexpr int64_t kMaxGroupNumber = (int64_t{1} << 16) - 1;
constexpr uint32_t kMaxUserTag = (1u << 28) - 1;
constexpr uint64_t kExactTag = ~uint64_t{0};

namespace tag_internal {
constexpr uint64_t Head(TagClass c, int64_t epoch, int64_t group, int64_t sender) {
  return static_cast<uint64_t>(c) << 62 | (static_cast<uint64_t>(epoch) & 3) << 60 |
         (static_cast<uint64_t>(group) & 0xffff) << 44 | (static_cast<uint64_t>(sender) & 0xffff) << 28;
}
}  // namespace tag_internal

// The sequence wraps after 2^20 operations. That is safe: messages of one pair and tag are matched in posting order,
// so a receive takes the older of two equal ones, which is its own.
constexpr uint64_t CollectiveTag(int64_t epoch, int64_t group, int64_t sender, int64_t sequence, int phase) {
  return tag_internal::Head(TagClass::kCollective, epoch, group, sender) |
         (static_cast<uint64_t>(sequence) & 0xfffff) << 8 | static_cast<uint64_t>(phase & 0xff);
}
constexpr uint64_t UserTag(int64_t epoch, int64_t group, int64_t sender, uint32_t tag) {
  return tag_internal::Head(TagClass::kUser, epoch, group, sender) | (tag & kMaxUserTag);
}
// A group that is being made has no number yet: 44 bits of its id take the place of number and tag. The message
// carries the whole id, so a collision is seen.
constexpr uint64_t CreateGroupTag(int64_t epoch, int64_t id, int64_t sender) {
  uint64_t h = static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
  return tag_internal::Head(TagClass::kCreateGroup, epoch, static_cast<int64_t>(h >> 28), sender) | (h & kMaxUserTag);
}
constexpr uint64_t HelloTag(int64_t epoch, int64_t sender) { return tag_internal::Head(TagClass::kHello, epoch, 0, sender); }

// All messages of one group of one class, whoever sent them.
constexpr uint64_t GroupTag(TagClass c, int64_t epoch, int64_t group) { return tag_internal::Head(c, epoch, group, 0); }
constexpr uint64_t kGroupTagMask = ~((uint64_t{1} << 44) - 1);

}  // namespace moe
#endif  // MOE_TRANSPORT_TAG_H_
