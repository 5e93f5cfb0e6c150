// Members that disagree: an error on all of them, soon, that names ranks and both values; other groups go on.
#include <functional>

#include "transport/conformance/cases.h"

namespace moe::conformance {
namespace {

using Call = std::function<absl::Status(Communicator*)>;

struct Named {
  const char* words;  // expected in the error
  Call call;
};

std::vector<char>* Buffer() {
  static thread_local std::vector<char> buffer(8 << 20);
  return &buffer;
}

absl::Status AllToAll(Communicator* c, int64_t bytes, bool agreed) {
  const int n = c->size();
  std::vector<int64_t> counts(n, bytes), offsets(n);
  AllToAllV a;
  a.send = Buffer()->data();
  a.recv = Buffer()->data() + (4 << 20);
  a.send_bytes = a.recv_bytes = counts;
  a.send_offsets = a.recv_offsets = offsets;
  a.counts_agreed = agreed;
  return RunAllToAllV(c, a);
}

Named Reduce(int64_t count, DType d, ReduceOp op, const char* words) {
  return {words, [=](Communicator* c) { return AllReduce(c, Buffer()->data(), count, d, op); }};
}

std::vector<std::pair<Named, Named>> Disagreements() {
  const Named barrier{"barrier", [](Communicator* c) { return Barrier(c); }};
  const Named small = Reduce(10, DType::kF32, ReduceOp::kSum, "all_reduce(count 10, float32, sum)");
  const Named large = Reduce(100000, DType::kF32, ReduceOp::kSum, "all_reduce(count 100000, float32, sum)");
  const Named gather{"all_gather(bytes 40)", [](Communicator* c) { return AllGather(c, Buffer()->data(), 40, Buffer()->data() + 4096); }};
  const Named big_gather{"all_gather(bytes 100000)", [](Communicator* c) { return AllGather(c, Buffer()->data(), 100000, Buffer()->data() + (1 << 20)); }};
  const Named scatter{"reduce_scatter(count 10, float32, sum)",
                      [](Communicator* c) { return ReduceScatter(c, Buffer()->data(), Buffer()->data() + 4096, 10, DType::kF32); }};
  const Named broadcast{"broadcast(bytes 100, root 0)", [](Communicator* c) { return Broadcast(c, Buffer()->data(), 100, 0); }};
  const Named all_to_all{"all_to_all_v(counts_agreed false)", [](Communicator* c) { return AllToAll(c, 100, false); }};
  return {{small, barrier},
          {barrier, large},
          {small, gather},
          {gather, big_gather},
          {scatter, all_to_all},
          {small, broadcast},
          {all_to_all, big_gather},
          {small, Reduce(11, DType::kF32, ReduceOp::kSum, "all_reduce(count 11, float32, sum)")},
          {large, Reduce(100001, DType::kF32, ReduceOp::kSum, "all_reduce(count 100001, float32, sum)")},
          {small, Reduce(10, DType::kI32, ReduceOp::kSum, "all_reduce(count 10, int32, sum)")},
          {small, Reduce(10, DType::kF32, ReduceOp::kMax, "all_reduce(count 10, float32, max)")},
          {small, large}};
}

// Two different operations at one place of the sequence.
absl::Status DifferentOperations(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto sound, t->CreateGroup(1, rank.Everybody()));
  int64_t id = 10;
  for (const auto& [first, second] : Disagreements()) {
    for (int64_t odd_one : {int64_t{0}, rank.size - 1}) {
      MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(++id, rank.Everybody()));
      MOE_RETURN_IF_ERROR(Barrier(c.get()));
      MOE_RETURN_IF_ERROR(Barrier(sound.get()));  // all are through
      absl::Status s = rank.rank == odd_one ? second.call(c.get()) : first.call(c.get());
      // A broadcast's root may be done before it can know; it knows at the next operation.
      for (int i = 0; i < 3 && s.ok(); ++i) s = Barrier(c.get());
      MOE_RETURN_IF_ERROR(Annotate(ExpectError(s, absl::StatusCode::kInvalidArgument, {first.words, second.words, absl::StrCat("group ", id), "operation 1"}),
                                   absl::StrCat(first.words, " against ", second.words)));
      const FailureInfo info = GetFailureInfo(s);
      MOE_CHECK_THAT(info.group == id && info.sequence == 1 && info.failed_ranks.size() == 2);
      MOE_CHECK_THAT(Barrier(c.get()) == s, "a poisoned communicator returns the same status");
    }
  }
  MOE_RETURN_IF_ERROR(Barrier(sound.get()));
  return t->Shutdown();
}

// An all-to-all with agreed counts has no opening: whoever waits too long tells the others what it waits for.
absl::Status AgreedAgainstOther(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  const absl::Time start = absl::Now();
  const absl::Status s = rank.rank == 0 ? AllToAll(c.get(), 100, true) : AllReduce(c.get(), Buffer()->data(), 10, DType::kF32);
  MOE_RETURN_IF_ERROR(ExpectError(s, absl::StatusCode::kInvalidArgument, {"rank 0 calls all_to_all_v(counts_agreed true)", "all_reduce(count 10, float32, sum)"}));
  MOE_CHECK_THAT(absl::Now() - start < absl::Seconds(8));
  return t->Shutdown();
}

// One rank makes one call more than the others, who have left.
absl::Status OneCallMore(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  MOE_RETURN_IF_ERROR(Barrier(c.get()));
  if (rank.rank == 0) {
    MOE_RETURN_IF_ERROR(ExpectError(Barrier(c.get()), absl::StatusCode::kInvalidArgument, {"rank 0 waits in operation 1, barrier", "has called Shutdown after 1 operations"}));
  }
  return t->Shutdown();
}

// The case of NCCL 788: the sender says 0, the receiver expects some.
absl::Status Counts(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto sound, t->CreateGroup(1, rank.Everybody()));
  const int n = static_cast<int>(rank.size);
  int64_t id = 10;
  for (const auto& [sent, expected] : std::vector<std::pair<int64_t, int64_t>>{{0, 16}, {16, 0}, {100, 99}, {99, 100}, {1 << 20, 1 << 19}}) {
    for (int from = 0; from < n; ++from) {
      const int to = (from + 1) % n;
      MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(++id, rank.Everybody()));
      std::vector<int64_t> send(n, 8), recv(n, 8), offsets(n);
      if (rank.rank == from) send[to] = sent;
      if (rank.rank == to) recv[from] = expected;
      AllToAllV a;
      a.send = Buffer()->data();
      a.recv = Buffer()->data() + (4 << 20);
      a.send_bytes = send;
      a.recv_bytes = recv;
      a.send_offsets = a.recv_offsets = offsets;
      const absl::Status s = RunAllToAllV(c.get(), a);
      MOE_RETURN_IF_ERROR(ExpectError(s, absl::StatusCode::kInvalidArgument,
                                      {absl::StrCat("rank ", from, " sends ", sent, " bytes to rank ", to), absl::StrCat("expects ", expected, " bytes")}));
      MOE_CHECK_THAT(GetFailureInfo(s).failed_ranks == (std::vector<int64_t>{from, to}));
      MOE_CHECK_THAT(Barrier(c.get()) == s);
    }
  }
  MOE_RETURN_IF_ERROR(Barrier(sound.get()));
  return t->Shutdown();
}

absl::Status WrongLength(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto sound, t->CreateGroup(1, rank.Everybody()));
  int64_t id = 10;
  for (const auto& [sent, expected] : std::vector<std::pair<int64_t, int64_t>>{{10, 20}, {20, 10}, {0, 1}, {1, 0}, {5000, 1 << 20}, {1 << 20, 5000}, {1 << 20, 1 << 19}, {1 << 19, 1 << 20}}) {
    MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(++id, rank.Everybody()));
    MOE_RETURN_IF_ERROR(Barrier(sound.get()));
    absl::Status s;
    if (rank.rank == 0) s = Send(c.get(), Buffer()->data(), sent, 1, 7);
    if (rank.rank == 1) s = Recv(c.get(), Buffer()->data(), expected, 0, 7);
    if (s.ok()) s = Barrier(c.get());  // a small message has left its buffer before anybody knows
    MOE_RETURN_IF_ERROR(ExpectError(s, absl::StatusCode::kInvalidArgument,
                                    {absl::StrCat("rank 0 sent ", sent, " bytes"), absl::StrCat("rank 1 expected ", expected), "tag 7"}));
  }
  MOE_RETURN_IF_ERROR(Barrier(sound.get()));
  return t->Shutdown();
}

// A wrong argument of one rank is not a hang of the others.
absl::Status WrongArgument(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  MOE_ASSIGN_OR_RETURN(auto sound, t->CreateGroup(2, rank.Everybody()));
  MOE_RETURN_IF_ERROR(Barrier(sound.get()));
  const absl::Status s = AllReduce(c.get(), rank.rank == 0 ? nullptr : Buffer()->data(), 10, DType::kF32);
  MOE_RETURN_IF_ERROR(ExpectError(s, absl::StatusCode::kInvalidArgument, {"all_reduce of rank 0", "inout is null with 40 bytes"}));
  return t->Shutdown();
}

absl::Status WrongMembers(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  const int64_t n = rank.size;
  // The last rank thinks it is alone with rank 0; the others think that all take part.
  const std::vector<int64_t> members = n > 2 && rank.rank == n - 1 ? std::vector<int64_t>{0, n - 1} : rank.Everybody();
  if (n > 2) {
    MOE_RETURN_IF_ERROR(ExpectError(t->CreateGroup(1, members).status(), absl::StatusCode::kInvalidArgument, {"CreateGroup", "2 members", absl::StrCat(n, " members")}));
  }
  MOE_RETURN_IF_ERROR(ExpectError(t->CreateGroup(2, {n}).status(), absl::StatusCode::kInvalidArgument, {absl::StrCat("member ", n, " is not a rank")}));
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(3, rank.Everybody()));
  MOE_RETURN_IF_ERROR(ExpectError(t->CreateGroup(3, rank.Everybody()).status(), absl::StatusCode::kAlreadyExists, {"id 3"}));
  MOE_RETURN_IF_ERROR(Barrier(c.get()));
  return t->Shutdown();
}

}  // namespace

std::vector<NamedCase> DisagreementCases() {
  return {{"DifferentOperations", DifferentOperations}, {"AgreedAgainstOther", AgreedAgainstOther}, {"OneCallMore", OneCallMore}, {"Counts", Counts},
          {"WrongLength", WrongLength}, {"WrongArgument", WrongArgument}, {"WrongMembers", WrongMembers}};
}

}  // namespace moe::conformance
