// Many groups, many operations in flight, other orders on other ranks, several threads.
#include <thread>

#include "core/base/random.h"
#include "transport/conformance/cases.h"

namespace moe::conformance {
namespace {

struct Sum {
  std::vector<float> data;
  float expected;
};

// Two groups of the same members, operations posted and waited for in opposite order on even and odd ranks.
absl::Status OppositeOrder(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto a, t->CreateGroup(id, AllRanks(t)));
  MOE_ASSIGN_OR_RETURN(auto b, t->CreateGroup(id + 1, AllRanks(t)));
  const int64_t n = t->world_size();
  for (int64_t count : {10, 50000}) {
    for (int round = 0; round < 5; ++round) {
      std::vector<float> x(count, 1.0f), y(count, 2.0f);
      Communicator* first = t->rank() % 2 ? b.get() : a.get();
      Communicator* second = t->rank() % 2 ? a.get() : b.get();
      std::vector<float>& fx = first == a.get() ? x : y;
      std::vector<float>& sx = first == a.get() ? y : x;
      MOE_ASSIGN_OR_RETURN(WorkPtr w1, first->PostAllReduce(fx.data(), count, DType::kF32, ReduceOp::kSum));
      MOE_ASSIGN_OR_RETURN(WorkPtr w2, second->PostAllReduce(sx.data(), count, DType::kF32, ReduceOp::kSum));
      MOE_RETURN_IF_ERROR(w2->Wait());
      MOE_RETURN_IF_ERROR(w1->Wait());
      MOE_CHECK_THAT(x[count - 1] == static_cast<float>(n) && y[0] == static_cast<float>(2 * n));
    }
  }
  return absl::OkStatus();
}

// Every subset of the ranks has a group; groups made late while others are busy; all alive at once.
absl::Status ManyGroups(Transport* t, int64_t id) {
  const int64_t n = t->world_size(), me = t->rank();
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<std::vector<int64_t>> mine;
  std::vector<int64_t> values;
  std::vector<WorkPtr> works;
  values.reserve(64);
  for (int64_t set = 1; set < (1 << n); ++set) {
    if ((set >> me & 1) == 0) continue;
    std::vector<int64_t> members;
    for (int64_t r = 0; r < n; ++r) {
      if (set >> r & 1) members.push_back(r);
    }
    MOE_ASSIGN_OR_RETURN(auto g, t->CreateGroup(id + set, members));
    MOE_CHECK_THAT(g->size() == static_cast<int>(members.size()) && g->members()[g->rank()] == me && g->id() == id + set);
    values.push_back(int64_t{1} << (8 * me));
    MOE_ASSIGN_OR_RETURN(WorkPtr w, g->PostAllReduce(&values.back(), 1, DType::kI64, ReduceOp::kSum));
    works.push_back(std::move(w));
    groups.push_back(std::move(g));
    mine.push_back(members);
  }
  for (size_t i = works.size(); i-- > 0;) {
    MOE_RETURN_IF_ERROR(works[i]->Wait());
    int64_t expected = 0;
    for (int64_t r : mine[i]) expected += int64_t{1} << (8 * r);
    MOE_CHECK_THAT(values[i] == expected);  // spells who took part
  }
  // Groups die in another order than they were born; those alive go on.
  while (!groups.empty()) {
    groups.erase(groups.begin());
    if (groups.empty()) break;
    MOE_RETURN_IF_ERROR(Barrier(groups.back().get()));
  }
  return absl::OkStatus();
}

absl::Status ManyInFlight(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  const int n = c->size();
  constexpr int kOps = 40;
  std::vector<std::vector<float>> data;
  std::vector<WorkPtr> works;
  for (int o = 0; o < kOps; ++o) data.emplace_back(o % 3 == 0 ? 3000 : 5, static_cast<float>(c->rank() + o));
  for (int o = 0; o < kOps; ++o) {
    absl::StatusOr<WorkPtr> w;
    if (o % 4 == 1) w = c->PostBarrier();
    else if (o % 4 == 2) w = c->PostBroadcast(data[o].data(), static_cast<int64_t>(data[o].size() * sizeof(float)), o % n);
    else w = c->PostAllReduce(data[o].data(), static_cast<int64_t>(data[o].size()), DType::kF32, ReduceOp::kMax);
    MOE_RETURN_IF_ERROR(w.status());
    works.push_back(*std::move(w));
  }
  // Polled in a rank's own order.
  std::vector<bool> finished(kOps);
  for (int left = kOps; left > 0;) {
    for (int i = 0; i < kOps; ++i) {
      const int o = (i * 7 + c->rank() * 3) % kOps;
      if (finished[o]) continue;
      MOE_ASSIGN_OR_RETURN(const bool done, works[o]->Test());
      if (done) { finished[o] = true; --left; }
    }
  }
  for (int o = 0; o < kOps; ++o) {
    const float expected = o % 4 == 1 ? static_cast<float>(c->rank() + o) : o % 4 == 2 ? static_cast<float>(o % n + o) : static_cast<float>(n - 1 + o);
    MOE_CHECK_THAT(data[o].front() == expected && data[o].back() == expected, "operation ", o);
  }
  return absl::OkStatus();
}

// A work that is dropped finishes first.
absl::Status DroppedWork(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(id, AllRanks(t)));
  std::vector<float> v(20000, 1.0f);
  { MOE_ASSIGN_OR_RETURN(WorkPtr w, c->PostAllReduce(v.data(), 20000, DType::kF32, ReduceOp::kSum)); }
  MOE_CHECK_THAT(v[19999] == static_cast<float>(c->size()));
  return absl::OkStatus();
}

// Expert all-to-all in one thread, gradient reduction in another, each with its own communicator.
absl::Status TwoThreads(Transport* t, int64_t id) {
  MOE_ASSIGN_OR_RETURN(auto a, t->CreateGroup(id, AllRanks(t)));
  MOE_ASSIGN_OR_RETURN(auto b, t->CreateGroup(id + 1, AllRanks(t)));
  const int n = a->size();
  absl::Status other;
  std::thread thread([&] {
    for (int i = 0; i < 60 && other.ok(); ++i) {
      std::vector<double> v(i % 2 ? 7 : 3000, 1.0);
      other = AllReduce(b.get(), v.data(), static_cast<int64_t>(v.size()), DType::kF64);
      if (other.ok() && v.back() != n) other = Internal("wrong sum");
    }
  });
  absl::Status mine;
  for (int i = 0; i < 60 && mine.ok(); ++i) {
    const int64_t bytes = i % 2 ? 16 : 40000;
    std::vector<uint8_t> send(n * bytes), recv(n * bytes);
    std::vector<int64_t> counts(n, bytes), offsets;
    for (int j = 0; j < n; ++j) {
      offsets.push_back(j * bytes);
      FillPattern(j * 100 + a->rank(), send.data() + j * bytes, bytes);
    }
    AllToAllV args;
    args.send = send.data();
    args.recv = recv.data();
    args.send_bytes = args.recv_bytes = counts;
    args.send_offsets = args.recv_offsets = offsets;
    args.counts_agreed = true;
    mine = RunAllToAllV(a.get(), args);
    for (int j = 0; j < n && mine.ok(); ++j) {
      if (FindWrongByte(a->rank() * 100 + j, recv.data() + j * bytes, bytes) >= 0) mine = Internal("wrong data");
    }
  }
  thread.join();
  MOE_RETURN_IF_ERROR(mine);
  return other;
}

}  // namespace

std::vector<NamedDataCase> OrderCases() {
  return {{"OppositeOrder", OppositeOrder}, {"ManyGroups", ManyGroups}, {"ManyInFlight", ManyInFlight}, {"DroppedWork", DroppedWork}, {"TwoThreads", TwoThreads}};
}

}  // namespace moe::conformance
