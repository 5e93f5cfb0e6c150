// Large blocks on large pages: a product walks over rows that lie kilobytes apart, and with pages of 4 KiB each of them
// costs a walk through the page tables.
#ifndef MOE_CORE_DEVICE_CPU_HUGE_PAGES_H_
#define MOE_CORE_DEVICE_CPU_HUGE_PAGES_H_

#include <cstdint>

namespace moe {

// Asks for large pages in the part of [data, data + bytes) that can have them. Only a hint: nothing happens where the
// system has none.
void AdviseHugePages(void* data, int64_t bytes);

}  // namespace moe
#endif  // MOE_CORE_DEVICE_CPU_HUGE_PAGES_H_
