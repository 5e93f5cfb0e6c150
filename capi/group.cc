#include <cstring>

#include "capi/internal.h"

using moe::capi::Catch;
using moe::capi::Enter;
using moe::capi::EngineState;
using moe::capi::NullArgument;

struct moe_work {
  std::shared_ptr<EngineState> state;
  std::shared_ptr<moe::Communicator> comm;
  moe::WorkPtr work;
};

namespace {

// Runs post (absl::StatusOr<WorkPtr>()); blocks, or hands the operation to the caller.
template <typename F>
moe_status* Post(moe_group* group, moe_work** work, F post) {
  return Catch([&]() -> absl::Status {
    if (group == nullptr) return NullArgument("group");
    return Enter(group->state, [&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(moe::WorkPtr w, post(group->comm.get()));
      if (work == nullptr) return w->Wait();
      *work = new moe_work{group->state, group->comm, std::move(w)};
      return absl::OkStatus();
    });
  });
}

absl::StatusOr<moe::DType> ToDType(int32_t d) {
  if (d < MOE_FLOAT32 || d > MOE_UINT8) return moe::InvalidArgument("dtype is ", d, ", must be a moe_dtype (1 to 5)");
  return static_cast<moe::DType>(d);
}
absl::StatusOr<moe::ReduceOp> ToOp(int32_t op) {
  if (op < MOE_SUM || op > MOE_MIN) return moe::InvalidArgument("op is ", op, ", must be a moe_reduce_op (0 to 2)");
  return static_cast<moe::ReduceOp>(op);
}
absl::Status CheckBuffer(const char* name, const void* p, int64_t n) {
  if (n < 0) return moe::InvalidArgument("size of ", name, " is ", n, ", must be >= 0");
  return p == nullptr && n > 0 ? NullArgument(name) : absl::OkStatus();
}

}  // namespace

extern "C" {

moe_status* moe_group_create(moe_engine* engine, int64_t id, const int64_t* ranks, int64_t n, moe_group** group) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    if (ranks == nullptr) return NullArgument("ranks");
    if (group == nullptr) return NullArgument("group");
    if (id < 0) return moe::InvalidArgument("id is ", id, ", must be >= 0");
    if (n < 1) return moe::InvalidArgument("n is ", n, ", must be at least 1");
    bool member = false;
    for (int64_t i = 0; i < n; ++i) {
      if (ranks[i] < 0 || ranks[i] >= engine->state->world_size) return moe::InvalidArgument("ranks[", i, "] is ", ranks[i], ", outside the world of ", engine->state->world_size);
      if (i > 0 && ranks[i] <= ranks[i - 1]) return moe::InvalidArgument("ranks[", i, "] is ", ranks[i], ", not above ranks[", i - 1, "]; list them ascending");
      member = member || ranks[i] == engine->state->rank;
    }
    if (!member) return moe::InvalidArgument("rank ", engine->state->rank, " is not among the ranks of the group that it makes");
    return Enter(engine->state, [&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(std::shared_ptr<moe::Communicator> comm, engine->state->transport->CreateGroup(moe::capi::kFirstUserGroup + id, absl::MakeConstSpan(ranks, n)));
      *group = new moe_group{engine->state, std::move(comm)};
      return absl::OkStatus();
    });
  });
}

moe_status* moe_group_world(moe_engine* engine, moe_group** group) {
  return Catch([&]() -> absl::Status {
    if (engine == nullptr) return NullArgument("engine");
    if (group == nullptr) return NullArgument("group");
    *group = new moe_group{engine->state, engine->state->world};
    return absl::OkStatus();
  });
}

int64_t moe_group_rank(const moe_group* group) { return group ? group->comm->rank() : -1; }
int64_t moe_group_size(const moe_group* group) { return group ? group->comm->size() : -1; }
void moe_group_destroy(moe_group* group) { delete group; }

moe_status* moe_group_all_reduce(moe_group* group, void* inout, int64_t count, int32_t dtype, int32_t op, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) -> absl::StatusOr<moe::WorkPtr> {
    MOE_RETURN_IF_ERROR(CheckBuffer("inout", inout, count));
    MOE_ASSIGN_OR_RETURN(moe::DType d, ToDType(dtype));
    MOE_ASSIGN_OR_RETURN(moe::ReduceOp o, ToOp(op));
    return c->PostAllReduce(inout, count, d, o);
  });
}

moe_status* moe_group_all_gather(moe_group* group, const void* send, int64_t bytes, void* recv, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) -> absl::StatusOr<moe::WorkPtr> {
    MOE_RETURN_IF_ERROR(CheckBuffer("send", send, bytes));
    MOE_RETURN_IF_ERROR(CheckBuffer("recv", recv, bytes));
    return c->PostAllGather(send, bytes, recv);
  });
}

moe_status* moe_group_reduce_scatter(moe_group* group, const void* send, void* recv, int64_t count, int32_t dtype, int32_t op, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) -> absl::StatusOr<moe::WorkPtr> {
    MOE_RETURN_IF_ERROR(CheckBuffer("send", send, count));
    MOE_RETURN_IF_ERROR(CheckBuffer("recv", recv, count));
    MOE_ASSIGN_OR_RETURN(moe::DType d, ToDType(dtype));
    MOE_ASSIGN_OR_RETURN(moe::ReduceOp o, ToOp(op));
    return c->PostReduceScatter(send, recv, count, d, o);
  });
}

moe_status* moe_group_all_to_all_v(moe_group* group, const void* send, const int64_t* send_bytes, const int64_t* send_offsets,
                                   void* recv, const int64_t* recv_bytes, const int64_t* recv_offsets, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) -> absl::StatusOr<moe::WorkPtr> {
    const std::pair<const char*, const int64_t*> arrays[] = {{"send_bytes", send_bytes}, {"send_offsets", send_offsets}, {"recv_bytes", recv_bytes}, {"recv_offsets", recv_offsets}};
    for (const auto& [name, p] : arrays)
      if (p == nullptr) return NullArgument(name);
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
  return Post(group, work, [&](moe::Communicator* c) -> absl::StatusOr<moe::WorkPtr> {
    MOE_RETURN_IF_ERROR(CheckBuffer("inout", inout, bytes));
    if (root < 0 || root >= c->size()) return moe::InvalidArgument("root is ", root, ", outside the group of ", c->size());
    return c->PostBroadcast(inout, bytes, static_cast<int>(root));
  });
}

moe_status* moe_group_send(moe_group* group, const void* data, int64_t bytes, int64_t to, uint32_t tag, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) -> absl::StatusOr<moe::WorkPtr> {
    MOE_RETURN_IF_ERROR(CheckBuffer("data", data, bytes));
    if (to < 0 || to >= c->size()) return moe::InvalidArgument("to is ", to, ", outside the group of ", c->size());
    return c->PostSend(data, bytes, static_cast<int>(to), tag);
  });
}

moe_status* moe_group_recv(moe_group* group, void* data, int64_t bytes, int64_t from, uint32_t tag, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) -> absl::StatusOr<moe::WorkPtr> {
    MOE_RETURN_IF_ERROR(CheckBuffer("data", data, bytes));
    if (from < 0 || from >= c->size()) return moe::InvalidArgument("from is ", from, ", outside the group of ", c->size());
    return c->PostRecv(data, bytes, static_cast<int>(from), tag);
  });
}

moe_status* moe_group_barrier(moe_group* group, moe_work** work) {
  return Post(group, work, [&](moe::Communicator* c) { return c->PostBarrier(); });
}

moe_status* moe_work_test(moe_work* work, int32_t* done) {
  return Catch([&]() -> absl::Status {
    if (work == nullptr) return NullArgument("work");
    if (done == nullptr) return NullArgument("done");
    return Enter(work->state, [&]() -> absl::Status {
      MOE_ASSIGN_OR_RETURN(bool finished, work->work->Test());
      *done = finished;
      return absl::OkStatus();
    });
  });
}

moe_status* moe_work_wait(moe_work* work) {
  return Catch([&]() -> absl::Status {
    if (work == nullptr) return NullArgument("work");
    return Enter(work->state, [&] { return work->work->Wait(); });
  });
}

void moe_work_destroy(moe_work* work) {
  if (work == nullptr) return;
  const std::shared_ptr<EngineState> state = work->state;   // outlives the lock
  std::lock_guard<std::mutex> lock(state->in_use);          // an unfinished operation is waited for
  delete work;
}

}  // extern "C"
