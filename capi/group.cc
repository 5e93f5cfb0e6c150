#include "capi/collective.h"
#include "capi/engine_state.h"

using moe::capi::Call;
using moe::capi::EngineState;
using moe::capi::NullArgument;

struct moe_work final : moe::capi::Handle {
  using Handle::Handle;
  std::shared_ptr<moe::Communicator> comm;   // outlives the operation
  moe::WorkPtr work;
};

namespace {

// Checks arguments that the communicator cannot see, runs post (absl::StatusOr<WorkPtr>()), and blocks or hands the operation out. An argument
// that is wrong on one member ends the group, as the communicator does with those that it checks: the others wait for this operation.
template <typename Check, typename F>
moe_status* Post(moe_group* group, moe_work** work, Check check, F post) {
  return Call("group", group, [&]() -> absl::Status {
    const std::shared_ptr<moe::Communicator> c = group->comm;
    std::unique_ptr<moe_work> handle;
    if (work != nullptr) {
      handle = std::make_unique<moe_work>(group->state);
      handle->comm = c;
    }
    if (const absl::Status s = check(c.get()); !s.ok()) {
      moe::FailureInfo info;
      info.origin_rank = group->state->rank;
      info.failed_ranks = {info.origin_rank};
      info.group = c->id();
      info.epoch = c->epoch();
      const absl::Status told = moe::WithFailureInfo(moe::Annotate(s, absl::StrCat("rank ", info.origin_rank)), info);
      if (c->size() > 1) c->Abort(told);
      return c->size() > 1 ? told : s;
    }
    MOE_ASSIGN_OR_RETURN(moe::WorkPtr w, post(c.get()));
    if (work == nullptr) return w->Wait();
    handle->work = std::move(w);
    *work = handle.release();
    return absl::OkStatus();
  });
}

absl::Status CheckType(int32_t dtype) {
  return dtype >= MOE_FLOAT32 && dtype <= MOE_UINT8 ? absl::OkStatus() : moe::InvalidArgument("dtype is ", dtype, ", must be a moe_dtype (1 to 5)");
}
absl::Status CheckReduction(int32_t dtype, int32_t op) {
  MOE_RETURN_IF_ERROR(CheckType(dtype));
  return op >= MOE_SUM && op <= MOE_MIN ? absl::OkStatus() : moe::InvalidArgument("op is ", op, ", must be a moe_reduce_op (0 to 2)");
}
absl::Status CheckMember(const char* name, int64_t member, int64_t size) {
  return member >= 0 && member < size ? absl::OkStatus() : moe::InvalidArgument(name, " is ", member, ", members of the group are 0 to ", size - 1);
}
absl::Status NoCheck(moe::Communicator*) { return absl::OkStatus(); }

absl::Status CheckRanks(const EngineState& s, int64_t id, const int64_t* ranks, int64_t n) {
  if (id < 0 || id >= moe::capi::kFirstOwnGroup) return moe::InvalidArgument("id is ", id, ", must be 0 to ", moe::capi::kFirstOwnGroup - 1);
  if (n < 1 || n > s.world_size) return moe::InvalidArgument("n is ", n, ", must be 1 to the size of the world, which is ", s.world_size);
  bool member = false;
  for (int64_t i = 0; i < n; ++i) {
    if (ranks[i] < 0 || ranks[i] >= s.world_size) return moe::InvalidArgument("ranks[", i, "] is ", ranks[i], ", must be 0 to ", s.world_size - 1);
    if (i > 0 && ranks[i] <= ranks[i - 1]) return moe::InvalidArgument("ranks[", i, "] is ", ranks[i], " after ", ranks[i - 1], "; list them ascending");
    member = member || ranks[i] == s.rank;
  }
  return member ? absl::OkStatus() : moe::InvalidArgument("rank ", s.rank, " is not among the ranks of the group that it makes");
}

}  // namespace

extern "C" {

moe_status* moe_group_create(moe_engine* engine, int64_t id, const int64_t* ranks, int64_t n, moe_group** group) {
  return Call("engine", engine, [&]() -> absl::Status {
    if (ranks == nullptr) return NullArgument("ranks");
    if (group == nullptr) return NullArgument("group");
    MOE_RETURN_IF_ERROR(CheckRanks(*engine->state, id, ranks, n));
    MOE_ASSIGN_OR_RETURN(std::shared_ptr<moe::Communicator> comm, engine->state->transport->CreateGroup(id, absl::MakeConstSpan(ranks, static_cast<size_t>(n))));
    *group = new moe_group(engine->state, std::move(comm));
    return absl::OkStatus();
  });
}

moe_status* moe_group_world(moe_engine* engine, moe_group** group) {
  return Call("engine", engine, [&]() -> absl::Status {
    if (group == nullptr) return NullArgument("group");
    *group = new moe_group(engine->state, engine->state->world);
    return absl::OkStatus();
  });
}

int64_t moe_group_rank(const moe_group* group) { return group ? group->comm->rank() : -1; }
int64_t moe_group_size(const moe_group* group) { return group ? group->comm->size() : -1; }
void moe_group_destroy(moe_group* group) { moe::capi::Destroy(group); }

moe_status* moe_group_all_reduce(moe_group* group, void* inout, int64_t count, int32_t dtype, int32_t op, moe_work** work) {
  return Post(group, work, [&](moe::Communicator*) { return CheckReduction(dtype, op); },
              [&](moe::Communicator* c) { return c->PostAllReduce(inout, count, static_cast<moe::DType>(dtype), static_cast<moe::ReduceOp>(op)); });
}

moe_status* moe_group_all_gather(moe_group* group, const void* send, int64_t bytes, void* recv, moe_work** work) {
  return Post(group, work, NoCheck, [&](moe::Communicator* c) { return c->PostAllGather(send, bytes, recv); });
}

moe_status* moe_group_reduce_scatter(moe_group* group, const void* send, void* recv, int64_t count, int32_t dtype, int32_t op, moe_work** work) {
  return Post(group, work, [&](moe::Communicator*) { return CheckReduction(dtype, op); },
              [&](moe::Communicator* c) { return c->PostReduceScatter(send, recv, count, static_cast<moe::DType>(dtype), static_cast<moe::ReduceOp>(op)); });
}

moe_status* moe_group_all_to_all_v(moe_group* group, const void* send, const int64_t* send_bytes, const int64_t* send_offsets,
                                   void* recv, const int64_t* recv_bytes, const int64_t* recv_offsets, moe_work** work) {
  const auto check = [&](moe::Communicator*) {
    const std::pair<const char*, const int64_t*> arrays[] = {{"send_bytes", send_bytes}, {"send_offsets", send_offsets}, {"recv_bytes", recv_bytes}, {"recv_offsets", recv_offsets}};
    for (const auto& [name, p] : arrays)
      if (p == nullptr) return NullArgument(name);
    return absl::OkStatus();
  };
  return Post(group, work, check, [&](moe::Communicator* c) {
    const size_t n = static_cast<size_t>(c->size());
    moe::AllToAllV a;
    a.send = send;
    a.recv = recv;
    a.send_bytes = absl::MakeConstSpan(send_bytes, n);
    a.send_offsets = absl::MakeConstSpan(send_offsets, n);
    a.recv_bytes = absl::MakeConstSpan(recv_bytes, n);
    a.recv_offsets = absl::MakeConstSpan(recv_offsets, n);
    return c->PostAllToAllV(a);
  });
}

moe_status* moe_group_broadcast(moe_group* group, void* inout, int64_t bytes, int64_t root, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) { return CheckMember("root", root, c->size()); },
              [&](moe::Communicator* c) { return c->PostBroadcast(inout, bytes, static_cast<int>(root)); });
}

moe_status* moe_group_send(moe_group* group, const void* data, int64_t bytes, int64_t to, uint32_t tag, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) { return CheckMember("to", to, c->size()); },
              [&](moe::Communicator* c) { return c->PostSend(data, bytes, static_cast<int>(to), tag); });
}

moe_status* moe_group_recv(moe_group* group, void* data, int64_t bytes, int64_t from, uint32_t tag, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) { return CheckMember("from", from, c->size()); },
              [&](moe::Communicator* c) { return c->PostRecv(data, bytes, static_cast<int>(from), tag); });
}

moe_status* moe_group_barrier(moe_group* group, moe_work** work) {
  return Post(group, work, NoCheck, [&](moe::Communicator* c) { return c->PostBarrier(); });
}

moe_status* moe_work_test(moe_work* work, int32_t* done) {
  return Call("work", work, [&]() -> absl::Status {
    if (done == nullptr) return NullArgument("done");
    MOE_ASSIGN_OR_RETURN(const bool finished, work->work->Test());
    *done = finished ? 1 : 0;
    return absl::OkStatus();
  });
}

moe_status* moe_work_wait(moe_work* work) {
  return Call("work", work, [&] { return work->work->Wait(); });
}

// The caller may free the buffers after this, so it waits for the operation, and before that for a thread that is inside the engine.
void moe_work_destroy(moe_work* work) {
  if (work == nullptr) return;
  const std::shared_ptr<EngineState> state = work->state;
  if (state->fork_guard.in_child()) return;
  if (!state->gate.WaitAndEnter()) return moe::capi::Destroy(work);   // from a log callback: at the end of the call
  delete work;
  state->gate.Leave();
}

}  // extern "C"
