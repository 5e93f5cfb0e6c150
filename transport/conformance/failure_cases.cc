// Ranks that die, stop, leave or never come; abort.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "transport/conformance/cases.h"

namespace moe::conformance {
namespace {

// The end of this rank without a word: its process is killed; a thread of a process drops its transport.
absl::Status Die(const Rank& rank, std::unique_ptr<Transport> t) {
  if (rank.lane != Lane::kInproc) kill(getpid(), SIGKILL);
  t.reset();
  return absl::OkStatus();
}

absl::Status AllToAll(Communicator* c, std::vector<char>* send, std::vector<char>* recv) {
  const int n = c->size();
  const int64_t bytes = static_cast<int64_t>(send->size()) / n;
  std::vector<int64_t> counts(n, bytes), offsets;
  for (int j = 0; j < n; ++j) offsets.push_back(j * bytes);
  AllToAllV a;
  a.send = send->data();
  a.recv = recv->data();
  a.send_bytes = a.recv_bytes = counts;
  a.send_offsets = a.recv_offsets = offsets;
  a.counts_agreed = true;
  return RunAllToAllV(c, a);
}

// The survivors work on until they learn of it; every communicator of theirs is poisoned.
absl::Status DeathDuring(const Rank& rank, const std::function<absl::Status(Communicator*, int round)>& work) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  MOE_ASSIGN_OR_RETURN(auto other, t->CreateGroup(2, rank.Everybody()));
  const int64_t victim = rank.size - 1;
  absl::Status s;
  absl::Time last = absl::Now();
  for (int round = 0; s.ok(); ++round) {
    if (rank.rank == victim && round == 20) return Die(rank, std::move(t));
    last = absl::Now();
    s = work(c.get(), round);
  }
  MOE_CHECK_THAT(absl::Now() - last < absl::Seconds(5), "took ", absl::FormatDuration(absl::Now() - last));
  MOE_RETURN_IF_ERROR(ExpectError(s, absl::StatusCode::kUnavailable, {absl::StrCat("rank ", victim)}));
  MOE_CHECK_THAT(GetFailureInfo(s).failed_ranks == std::vector<int64_t>{victim});
  MOE_CHECK_THAT(Barrier(other.get()) == s);
  MOE_CHECK_THAT(t->CreateGroup(9, rank.Everybody()).status() == s);
  const absl::Time before = absl::Now();
  MOE_CHECK_THAT(t->Shutdown() == s);
  other.reset();
  t.reset();
  c.reset();
  MOE_CHECK_THAT(absl::Now() - before < absl::Seconds(3), "tear-down took ", absl::FormatDuration(absl::Now() - before));
  return absl::OkStatus();
}

absl::Status DeathInBarrier(const Rank& rank) {
  return DeathDuring(rank, [](Communicator* c, int) { return Barrier(c); });
}
absl::Status DeathInAllToAll(const Rank& rank) {
  std::vector<char> send(800000), recv(800000);
  return DeathDuring(rank, [&](Communicator* c, int) { return AllToAll(c, &send, &recv); });
}
absl::Status DeathInMediumAllToAll(const Rank& rank) {
  std::vector<char> send(8192 * rank.size), recv(8192 * rank.size);
  return DeathDuring(rank, [&](Communicator* c, int) { return AllToAll(c, &send, &recv); });
}
// Nobody talks to the one that dies.
absl::Status DeathIdle(const Rank& rank) {
  return DeathDuring(rank, [&](Communicator* c, int round) {
    if (round < 20) return Barrier(c);
    char x = 0;
    return Recv(c, &x, 1, c->rank() == 0 && c->size() > 2 ? 1 : c->rank() == 0 ? c->size() - 1 : 0, 5);  // a message that nobody sends
  });
}

// Some time between the first connection and the first barrier: a few milliseconds that depend on the port.
absl::Status DeathInStart(const Rank& rank) {
  const int64_t victim = rank.size - 1;
  std::thread killer;
  if (rank.rank == victim) {
    killer = std::thread([&] {
      poll(nullptr, 0, 10 + rank.port % 32);
      kill(getpid(), SIGKILL);
    });
  }
  const absl::Time start = absl::Now();
  auto t = rank.Make();
  absl::Status s = t.status();
  if (t.ok()) {
    auto c = (*t)->CreateGroup(1, rank.Everybody());
    s = c.status();
    while (s.ok()) s = Barrier(c->get());
  }
  if (killer.joinable()) killer.join();  // never returns
  // It may have died before it came to the rendezvous.
  if (absl::IsDeadlineExceeded(s)) return ExpectError(s, absl::StatusCode::kDeadlineExceeded, {absl::StrCat("missing ranks: ", victim)});
  MOE_CHECK_THAT(absl::Now() - start < absl::Seconds(8), "took ", absl::FormatDuration(absl::Now() - start));
  return ExpectError(s, absl::StatusCode::kUnavailable, {absl::StrCat("rank ", victim)});
}

// Rank 0 goes on when the others have nothing more to do than to wait for it: a rank that fails right after a barrier could
// make the barrier of another fail.
absl::Status EverybodyHere(Communicator* c) {
  MOE_RETURN_IF_ERROR(Barrier(c));
  char x = 0;
  if (c->rank() != 0) return Send(c, &x, 1, 0, 77);
  for (int r = 1; r < c->size(); ++r) MOE_RETURN_IF_ERROR(Recv(c, &x, 1, r, 77));
  return absl::OkStatus();
}

absl::Status LeaveWithoutShutdown(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  MOE_RETURN_IF_ERROR(EverybodyHere(c.get()));
  if (rank.rank == 0) {
    t.reset();
    return ExpectError(Barrier(c.get()), absl::StatusCode::kCancelled, {"destroyed"});
  }
  return ExpectError(Barrier(c.get()), absl::StatusCode::kUnavailable, {"rank 0 left without Shutdown"});
}

// SIGSTOP: only a missing heartbeat tells.
absl::Status Stopped(const Rank& rank) {
  Rank quick = rank;
  quick.heartbeat = absl::Seconds(2);
  MOE_ASSIGN_OR_RETURN(auto t, quick.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  MOE_RETURN_IF_ERROR(Barrier(c.get()));
  if (rank.rank == rank.size - 1) kill(getpid(), SIGSTOP);
  const absl::Time start = absl::Now();
  MOE_RETURN_IF_ERROR(ExpectError(Barrier(c.get()), absl::StatusCode::kUnavailable, {absl::StrCat("rank ", rank.size - 1), "2s"}));
  MOE_CHECK_THAT(absl::Now() - start < absl::Seconds(6));
  return absl::OkStatus();
}

// The last rank is absent.
absl::Status NeverArrives(const Rank& rank) {
  auto t = rank.Make();
  absl::Status s = t.status();
  if (t.ok()) s = (*t)->CreateGroup(1, rank.Everybody()).status();  // threads meet first here
  MOE_RETURN_IF_ERROR(ExpectError(s, absl::StatusCode::kDeadlineExceeded, {absl::StrCat("missing ranks: ", rank.size - 1)}));
  MOE_CHECK_THAT(GetFailureInfo(s).failed_ranks == std::vector<int64_t>{rank.size - 1});
  return absl::OkStatus();
}

absl::Status PortTaken(const Rank& rank) {
  return ExpectError(rank.Make().status(), absl::StatusCode::kAlreadyExists, {absl::StrCat("transport.port ", rank.port), "is taken"});
}

// The last rank does something else than to come to the group.
absl::Status GroupMemberMissing(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto sound, t->CreateGroup(2, rank.Everybody()));
  if (rank.rank != rank.size - 1) {
    MOE_RETURN_IF_ERROR(ExpectError(t->CreateGroup(1, rank.Everybody()).status(), absl::StatusCode::kDeadlineExceeded,
                                    {"CreateGroup 1", absl::StrCat("missing ranks: ", rank.size - 1)}));
  }
  MOE_RETURN_IF_ERROR(Barrier(sound.get()));
  return t->Shutdown();
}

absl::Status ShutdownAlone(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  if (rank.rank == 0) return ExpectError(t->Shutdown(), absl::StatusCode::kDeadlineExceeded, {"Shutdown", "missing: 1"});
  char x = 0;  // until rank 0 has gone away in anger
  return ExpectError(Recv(c.get(), &x, 1, 0, 1), absl::StatusCode::kUnavailable, {"rank 0"});
}

absl::Status AbortFromThread(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto c, t->CreateGroup(1, rank.Everybody()));
  MOE_RETURN_IF_ERROR(EverybodyHere(c.get()));
  const absl::Status reason = absl::AbortedError("the user pressed stop");
  std::vector<char> data(1 << 20);
  if (rank.rank == 0) {
    std::atomic<int64_t> waited{-1};
    std::atomic<bool> waiting{false};
    absl::Status s;
    std::thread thread([&] {
      char x = 0;
      absl::StatusOr<WorkPtr> send = c->PostSend(data.data(), 1 << 20, 1, 1);  // that nobody receives: its buffer must come back
      absl::StatusOr<WorkPtr> recv = c->PostRecv(&x, 1, 1, 2);
      waiting = true;
      s = send.ok() && recv.ok() ? (*recv)->Wait() : Internal("post failed");
      if (s == reason) s = (*send)->Wait();
      waited = absl::ToUnixMillis(absl::Now());
    });
    while (!waiting) std::this_thread::yield();
    const int64_t start = absl::ToUnixMillis(absl::Now());
    t->Abort(reason);
    const int64_t returned = absl::ToUnixMillis(absl::Now());
    t->Abort(absl::InternalError("a second reason is not heard"));
    thread.join();
    MOE_CHECK_THAT(returned - start < 2000 && waited - start < 2000, returned - start, " ", waited - start);
    MOE_CHECK_THAT(s == reason, s.ToString());
    MOE_CHECK_THAT(Barrier(c.get()) == reason);
  } else {
    char x = 0;
    const absl::Status s = Recv(c.get(), &x, 1, 0, 9);
    MOE_RETURN_IF_ERROR(ExpectError(s, absl::StatusCode::kAborted, {"the user pressed stop"}));
    MOE_CHECK_THAT(GetFailureInfo(s).origin_rank == 0);
  }
  const int64_t start = absl::ToUnixMillis(absl::Now());
  t.reset();
  MOE_CHECK_THAT(absl::ToUnixMillis(absl::Now()) - start < 2000);
  return absl::OkStatus();
}

// One communicator aborted: its members learn it, another group goes on.
absl::Status AbortGroup(const Rank& rank) {
  MOE_ASSIGN_OR_RETURN(auto t, rank.Make());
  MOE_ASSIGN_OR_RETURN(auto a, t->CreateGroup(1, rank.Everybody()));
  MOE_ASSIGN_OR_RETURN(auto b, t->CreateGroup(2, rank.Everybody()));
  MOE_RETURN_IF_ERROR(EverybodyHere(b.get()));
  std::vector<char> data(1 << 20);
  absl::Status s;
  if (rank.rank == 0) {
    MOE_ASSIGN_OR_RETURN(WorkPtr send, a->PostSend(data.data(), 1 << 20, 1, 1));  // that nobody receives
    a->Abort(absl::AbortedError("enough"));
    s = send->Wait();
  } else {
    s = Barrier(a.get());
  }
  MOE_RETURN_IF_ERROR(ExpectError(s, absl::StatusCode::kAborted, {"enough"}));
  MOE_RETURN_IF_ERROR(Barrier(b.get()));
  return t->Shutdown();
}

}  // namespace

std::vector<NamedCase> FailureCases() {
  return {{"DeathInBarrier", DeathInBarrier}, {"DeathInAllToAll", DeathInAllToAll}, {"DeathInMediumAllToAll", DeathInMediumAllToAll}, {"DeathIdle", DeathIdle}, {"DeathInStart", DeathInStart},
          {"LeaveWithoutShutdown", LeaveWithoutShutdown}, {"Stopped", Stopped}, {"NeverArrives", NeverArrives}, {"PortTaken", PortTaken}, {"GroupMemberMissing", GroupMemberMissing},
          {"ShutdownAlone", ShutdownAlone}, {"AbortFromThread", AbortFromThread}, {"AbortGroup", AbortGroup}};
}

}  // namespace moe::conformance
