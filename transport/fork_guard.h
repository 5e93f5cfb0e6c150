// Tells a process that it is a child of the one that made a handle. Connections, shared memory and threads do not
// survive fork; using them in the child would corrupt the parent's job. A page that the kernel wipes in children needs
// no system call to check and no global fork handler.
#ifndef MOE_TRANSPORT_FORK_GUARD_H_
#define MOE_TRANSPORT_FORK_GUARD_H_

#include <sys/mman.h>
#include <unistd.h>

namespace moe {

class ForkGuard {
 public:
  ForkGuard() {
    void* p = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    if (madvise(p, sizeof(int), MADV_WIPEONFORK) != 0) {  // Linux before 4.14
      munmap(p, sizeof(int));
      return;
    }
    here_ = static_cast<volatile int*>(p);
    *here_ = 1;
  }
  ~ForkGuard() {
    if (here_ != nullptr) munmap(const_cast<int*>(here_), sizeof(int));
  }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool in_child() const { return here_ != nullptr ? *here_ == 0 : getpid() != pid_; }

 private:
  volatile int* here_ = nullptr;
  const pid_t pid_ = getpid();
};

}  // namespace moe
#endif  // MOE_TRANSPORT_FORK_GUARD_H_
