// Reductions against a rank-ordered local sum, bit by bit; gather, scatter, broadcast, send and receive.
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/random.h"
#include "transport/conformance/cases.h"

namespace moe::conformance {
namespace {

template <typename T>
T RandomValue(uint64_t seed, int64_t rank, int64_t i) {
  const uint64_t key = StreamKey(seed * 1000 + static_cast<uint64_t>(rank), "values");
  const uint64_t bits = RandomBits(key, i);
  if constexpr (std::is_floating_point_v<T>) {
    // Very different sizes, so that any other order of summation shows.
    return static_cast<T>((static_cast<double>(bits >> 11) / (1ull << 53) - 0.5) * std::pow(10.0, static_cast<double>(bits % 12)));
  } else {
    return static_cast<T>(bits);
  }
}

template <typename T>
T Combine(T a, T b, ReduceOp op) {
  if (op == ReduceOp::kMax) return b > a ? b : a;
  if (op == ReduceOp::kMin) return b < a ? b : a;
  if constexpr (std::is_floating_point_v<T>) return a + b;
  else return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <typename T>
std::vector<T> Values(uint64_t seed, int64_t rank, int64_t count) {
  std::vector<T> v(count);
  for (int64_t i = 0; i < count; ++i) v[i] = RandomValue<T>(seed, rank, i);
  return v;
}

template <typename T>
std::vector<T> Expected(uint64_t seed, int n, int64_t count, ReduceOp op) {
  std::vector<T> sum = Values<T>(seed, 0, count);
  for (int r = 1; r < n; ++r) {
    const std::vector<T> v = Values<T>(seed, r, count);
    for (int64_t i = 0; i < count; ++i) sum[i] = Combine(sum[i], v[i], op);
  }
  return sum;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const T* b) { return a.empty() || std::memcmp(a.data(), b, a.size() * sizeof(T)) == 0; }

template <typename T>
absl::Status Reductions(Communicator* c) {
  constexpr DType dtype = DTypeOf<T>::value;
  const int n = c->size(), me = c->rank();
  uint64_t seed = 0;
  // Below and above the limit of the small path (4096 bytes), and not divisible by the members.
  for (int64_t count : {0, 1, 3, 512, 513, 4097, 30011}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      ++seed;
      const std::string what = absl::StrCat(Name(dtype), " count ", count, " op ", static_cast<int>(op));
      std::vector<T> v = Values<T>(seed, me, count);
      MOE_RETURN_IF_ERROR(Annotate(AllReduce(c, v.data(), count, dtype, op), what));
      MOE_CHECK_THAT(SameBits(Expected<T>(seed, n, count, op), v.data()), "all_reduce ", what);

      const std::vector<T> all = Values<T>(seed, me, count * n);
      const std::vector<T> sums = Expected<T>(seed, n, count * n, op);
      std::vector<T> before = all, block(count);
      MOE_RETURN_IF_ERROR(Annotate(ReduceScatter(c, all.data(), block.data(), count, dtype, op), what));
      MOE_CHECK_THAT(before == all, "reduce_scatter changed its input: ", what);
      MOE_CHECK_THAT(SameBits(block, sums.data() + me * count), "reduce_scatter ", what);
    }
  }
  return absl::OkStatus();
}

absl::Status AllReductions(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  MOE_RETURN_IF_ERROR(Reductions<float>(c.get()));
  MOE_RETURN_IF_ERROR(Reductions<double>(c.get()));
  MOE_RETURN_IF_ERROR(Reductions<int32_t>(c.get()));
  MOE_RETURN_IF_ERROR(Reductions<int64_t>(c.get()));
  return Reductions<uint8_t>(c.get());
}

// The small and the large path sum in the same order.
absl::Status SmallEqualsLarge(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  std::vector<float> large = Values<float>(5, c->rank(), 5000), small(large.begin(), large.begin() + 1000);
  MOE_RETURN_IF_ERROR(AllReduce(c.get(), large.data(), 5000, DType::kF32));
  MOE_RETURN_IF_ERROR(AllReduce(c.get(), small.data(), 1000, DType::kF32));
  MOE_CHECK_THAT(SameBits(small, large.data()));
  return absl::OkStatus();
}

// A NaN anywhere is seen everywhere, also by max and min (a loss scaler asks for it).
absl::Status NanIsKept(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  for (int who = 0; who < c->size(); ++who) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      for (int64_t count : {1, 3000}) {
        std::vector<float> v(count, static_cast<float>(c->rank()));
        if (who == c->rank()) v.back() = std::numeric_limits<float>::quiet_NaN();
        MOE_RETURN_IF_ERROR(AllReduce(c.get(), v.data(), count, DType::kF32, op));
        MOE_CHECK_THAT(std::isnan(v.back()), "op ", static_cast<int>(op), " NaN of member ", who);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Gathers(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size(), me = c->rank();
  for (int64_t bytes : {0, 1, 17, 4096, 4097, 300000}) {
    for (bool in_place : {false, true}) {
      std::vector<uint8_t> recv(n * bytes, 0xee), own(bytes);
      uint8_t* send = in_place ? recv.data() + me * bytes : own.data();
      FillPattern(me, send, bytes);
      MOE_RETURN_IF_ERROR(AllGather(c.get(), send, bytes, recv.data()));
      for (int i = 0; i < n; ++i) MOE_CHECK_THAT(FindWrongByte(i, recv.data() + i * bytes, bytes) < 0, "bytes ", bytes, " block ", i);
    }
  }
  return absl::OkStatus();
}

absl::Status Broadcasts(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  for (int64_t bytes : {0, 1, 17, 4096, 4097, 1 << 20}) {
    for (int root = 0; root < c->size(); ++root) {
      std::vector<uint8_t> v(bytes, 0xee);
      if (root == c->rank()) FillPattern(root + 10, v.data(), bytes);
      MOE_RETURN_IF_ERROR(Broadcast(c.get(), v.data(), bytes, root));
      MOE_CHECK_THAT(FindWrongByte(root + 10, v.data(), bytes) < 0, "bytes ", bytes, " root ", root);
    }
  }
  return absl::OkStatus();
}

// Nobody leaves before everybody has come: the late member comes only after the others have said that they wait.
absl::Status Barriers(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size(), me = c->rank();
  for (int round = 0; round < 3 * n; ++round) {
    const int late = round % n;
    char go = 1;
    if (me == late) {
      for (int i = 0; i < n; ++i) {
        if (i != me) MOE_RETURN_IF_ERROR(Recv(c.get(), &go, 1, i, 3));
      }
      MOE_RETURN_IF_ERROR(Barrier(c.get()));
    } else {
      MOE_ASSIGN_OR_RETURN(WorkPtr w, c->PostBarrier());
      for (int poll = 0; poll < 200; ++poll) {
        MOE_ASSIGN_OR_RETURN(const bool done, w->Test());
        MOE_CHECK_THAT(!done, "member ", me, " left the barrier before member ", late, " came");
      }
      MOE_RETURN_IF_ERROR(Send(c.get(), &go, 1, late, 3));
      MOE_RETURN_IF_ERROR(w->Wait());
    }
  }
  return absl::OkStatus();
}

absl::Status SendRecv(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size(), me = c->rank();
  if (n == 1) return absl::OkStatus();
  const int next = (me + 1) % n, prev = (me + n - 1) % n;
  for (int64_t bytes : {0, 1, 1000, 8192, 65536, 300000}) {
    // Both directions at once; with two members next and prev are the same, so the direction is in the tag.
    std::vector<uint8_t> up(bytes), down(bytes), from_prev(bytes), from_next(bytes);
    FillPattern(100 + me, up.data(), bytes);
    FillPattern(200 + me, down.data(), bytes);
    MOE_ASSIGN_OR_RETURN(WorkPtr s1, c->PostSend(up.data(), bytes, next, 1));
    MOE_ASSIGN_OR_RETURN(WorkPtr s2, c->PostSend(down.data(), bytes, prev, 2));
    MOE_ASSIGN_OR_RETURN(WorkPtr r2, c->PostRecv(from_next.data(), bytes, next, 2));
    MOE_ASSIGN_OR_RETURN(WorkPtr r1, c->PostRecv(from_prev.data(), bytes, prev, 1));
    for (Work* w : {s1.get(), r1.get(), r2.get(), s2.get()}) MOE_RETURN_IF_ERROR(w->Wait());
    MOE_CHECK_THAT(FindWrongByte(100 + prev, from_prev.data(), bytes) < 0, "bytes ", bytes);
    MOE_CHECK_THAT(FindWrongByte(200 + next, from_next.data(), bytes) < 0, "bytes ", bytes);
  }
  // Equal tags: in posting order, small after large too.
  std::vector<std::vector<uint8_t>> out, in;
  std::vector<WorkPtr> works;
  for (int m = 0; m < 8; ++m) {
    const int64_t bytes = m % 2 ? 10 : 200000;
    out.emplace_back(bytes);
    in.emplace_back(bytes);
    FillPattern(1000 * me + m, out[m].data(), bytes);
    MOE_ASSIGN_OR_RETURN(WorkPtr s, c->PostSend(out[m].data(), bytes, next, 5));
    MOE_ASSIGN_OR_RETURN(WorkPtr r, c->PostRecv(in[m].data(), bytes, prev, 5));
    works.push_back(std::move(s));
    works.push_back(std::move(r));
  }
  for (WorkPtr& w : works) MOE_RETURN_IF_ERROR(w->Wait());
  for (int m = 0; m < 8; ++m) MOE_CHECK_THAT(FindWrongByte(1000 * prev + m, in[m].data(), in[m].size()) < 0, "message ", m);
  return absl::OkStatus();
}

}  // namespace

std::vector<NamedDataCase> CollectiveCases() {
  return {{"AllReductions", AllReductions}, {"SmallEqualsLarge", SmallEqualsLarge}, {"NanIsKept", NanIsKept}, {"Gathers", Gathers},
          {"Broadcasts", Broadcasts}, {"Barriers", Barriers}, {"SendRecv", SendRecv}};
}

}  // namespace moe::conformance
