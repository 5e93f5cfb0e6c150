// All-to-all-v: random counts, patterns of zeros, odd sizes, far offsets.
#include <sys/mman.h>

#include <cstring>
#include <numeric>

#include "core/base/random.h"
#include "transport/conformance/cases.h"

namespace moe::conformance {
namespace {

constexpr int64_t kSizes[] = {0, 1, 15, 16, 17, 20, 1024, 1025, 4096, 70000};

uint64_t Key(uint64_t seed, int64_t from, int64_t to) { return StreamKey(seed, "block") + static_cast<uint64_t>(from * 4096 + to) * 1000003; }

// Bytes from i to j, the same on all ranks.
using Matrix = std::vector<std::vector<int64_t>>;

absl::Status Exchange(Communicator* c, const Matrix& bytes, uint64_t seed, bool agreed) {
  const int n = c->size(), me = c->rank();
  constexpr int64_t kGap = 24;  // between blocks: must stay untouched
  std::vector<int64_t> sb(n), so(n), rb(n), ro(n);
  int64_t send_total = 0, recv_total = kGap;
  for (int j = 0; j < n; ++j) {
    sb[j] = bytes[me][j];
    so[j] = send_total;
    send_total += sb[j];
  }
  for (int j = n - 1; j >= 0; --j) {  // another order than the members'
    rb[j] = bytes[j][me];
    ro[j] = recv_total;
    recv_total += rb[j] + kGap;
  }
  std::vector<uint8_t> send(send_total), recv(recv_total, 0xee);
  for (int j = 0; j < n; ++j) FillPattern(Key(seed, me, j), send.data() + so[j], sb[j]);
  const std::vector<uint8_t> before = send;
  AllToAllV a;
  a.send = send.data();
  a.send_bytes = sb;
  a.send_offsets = so;
  a.recv = recv.data();
  a.recv_bytes = rb;
  a.recv_offsets = ro;
  a.counts_agreed = agreed;
  MOE_RETURN_IF_ERROR(RunAllToAllV(c, a));
  MOE_CHECK_THAT(send == before, "the input was overwritten");
  int64_t gaps_at = 0;
  for (int j = n - 1; j >= 0; --j) {
    for (; gaps_at < ro[j]; ++gaps_at) MOE_CHECK_THAT(recv[gaps_at] == 0xee, "byte outside the blocks was written at ", gaps_at, ", seed ", seed);
    const int64_t wrong = FindWrongByte(Key(seed, j, me), recv.data() + ro[j], rb[j]);
    MOE_CHECK_THAT(wrong < 0, "from member ", j, " byte ", wrong, " of ", rb[j], " is wrong, seed ", seed);
    gaps_at = ro[j] + rb[j];
  }
  for (; gaps_at < recv_total; ++gaps_at) MOE_CHECK_THAT(recv[gaps_at] == 0xee, "byte outside the blocks was written at ", gaps_at, ", seed ", seed);
  return absl::OkStatus();
}

absl::Status RandomCounts(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size();
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const uint64_t key = StreamKey(seed, "counts");
    Matrix m(n, std::vector<int64_t>(n));
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        const uint64_t at = static_cast<uint64_t>(i * n + j);
        m[i][j] = seed % 2 ? kSizes[RandomBelow(key, at, std::size(kSizes))] : static_cast<int64_t>(RandomBelow(key, at, 9000));
        if (seed % 5 == 0 && RandomBelow(key, at + 1000, 2) == 0) m[i][j] = 0;
      }
    }
    MOE_RETURN_IF_ERROR(Annotate(Exchange(c.get(), m, seed, seed % 3 == 0), absl::StrCat("seed ", seed)));
  }
  return absl::OkStatus();
}

absl::Status EverySize(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size();
  for (int64_t size : {0, 1, 15, 16, 17, 20, 4096, 1 << 20}) {
    for (bool agreed : {false, true}) {
      MOE_RETURN_IF_ERROR(Annotate(Exchange(c.get(), Matrix(n, std::vector<int64_t>(n, size)), size, agreed), absl::StrCat("size ", size)));
    }
  }
  return absl::OkStatus();
}

// One pair, a row, a column, everything, only self: nothing there, or nothing but there.
absl::Status ZeroPatterns(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size();
  uint64_t seed = 0;
  for (int64_t size : {20, 100000}) {
    for (int pattern = 0; pattern < 5; ++pattern) {
      for (bool inside : {false, true}) {
        for (int x = 0; x < (pattern < 3 ? n : 1); ++x) {
          Matrix m(n, std::vector<int64_t>(n));
          for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) {
              const bool hit = pattern == 0 ? i == x && j == (x + 1) % n : pattern == 1 ? i == x : pattern == 2 ? j == x : pattern == 3 ? true : i == j;
              m[i][j] = hit == inside ? size : 0;
            }
          }
          for (bool agreed : {false, true}) {
            MOE_RETURN_IF_ERROR(Annotate(Exchange(c.get(), m, ++seed, agreed), absl::StrCat("pattern ", pattern, " inside ", inside, " x ", x)));
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

// Offsets beyond 2^31 and 2^32 in a sparse mapping.
absl::Status FarOffsets(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size(), me = c->rank();
  const int64_t step = (int64_t{1} << 31) + 12345, size = 70001, total = step * (n + 1);
  auto map = [&]() { return static_cast<char*>(mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)); };
  char* send = map();
  char* recv = map();
  MOE_CHECK_THAT(send != MAP_FAILED && recv != MAP_FAILED);
  std::vector<int64_t> bytes(n, size), offsets(n);
  for (int j = 0; j < n; ++j) {
    offsets[j] = step * (j + 1);
    FillPattern(Key(7, me, j), send + offsets[j], size);
  }
  AllToAllV a;
  a.send = send;
  a.recv = recv;
  a.send_bytes = a.recv_bytes = bytes;
  a.send_offsets = a.recv_offsets = offsets;
  absl::Status s = RunAllToAllV(c.get(), a);
  for (int j = 0; j < n && s.ok(); ++j) {
    if (FindWrongByte(Key(7, j, me), recv + offsets[j], size) >= 0) s = Internal("far offsets: wrong data from ", j);
  }
  munmap(send, total);
  munmap(recv, total);
  return s;
}

// Large and tiny messages back to back, several in flight: never mixed up (gloo 334).
absl::Status BigAndTiny(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size(), me = c->rank();
  constexpr int kOps = 6;
  struct Buffers { std::vector<uint8_t> send, recv; std::vector<int64_t> bytes, offsets; };
  std::vector<Buffers> ops(kOps);
  std::vector<WorkPtr> works;
  for (int o = 0; o < kOps; ++o) {
    Buffers& b = ops[o];
    const int64_t size = o % 2 == 0 ? 20'000'000 / n : 1 + o;
    b.bytes.assign(n, size);
    for (int j = 0; j < n; ++j) b.offsets.push_back(j * size);
    b.send.resize(n * size);
    b.recv.resize(n * size);
    for (int j = 0; j < n; ++j) FillPattern(Key(100 + o, me, j), b.send.data() + b.offsets[j], size);
    AllToAllV a;
    a.send = b.send.data();
    a.recv = b.recv.data();
    a.send_bytes = a.recv_bytes = b.bytes;
    a.send_offsets = a.recv_offsets = b.offsets;
    a.counts_agreed = o >= 2;
    MOE_ASSIGN_OR_RETURN(WorkPtr w, c->PostAllToAllV(a));
    works.push_back(std::move(w));
  }
  for (int o = kOps - 1; o >= 0; --o) {
    MOE_RETURN_IF_ERROR(works[o]->Wait());
    for (int j = 0; j < n; ++j) {
      MOE_CHECK_THAT(FindWrongByte(Key(100 + o, j, me), ops[o].recv.data() + ops[o].offsets[j], ops[o].bytes[j]) < 0, "operation ", o, " from ", j);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<NamedDataCase> AllToAllCases() {
  return {{"RandomCounts", RandomCounts}, {"EverySize", EverySize}, {"ZeroPatterns", ZeroPatterns}, {"FarOffsets", FarOffsets}, {"BigAndTiny", BigAndTiny}};
}

}  // namespace moe::conformance
