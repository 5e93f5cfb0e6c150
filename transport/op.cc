#include "transport/op.h"

#include "transport/tag.h"

namespace moe {

uint64_t PostedOp::CollectiveTag(int64_t sender, int phase) const {
  return moe::CollectiveTag(group_->epoch, group_->number, sender, descriptor_.sequence, phase);
}

void PostedOp::Isend(int i, int64_t global_rank, uint64_t tag, const void* data, int64_t bytes) {
  ++outstanding_;
  requests_[i].Begin(true, global_rank, tag, const_cast<void*>(data), bytes);
  p2p_->Isend(&requests_[i]);
}

void PostedOp::Irecv(int i, int64_t global_rank, uint64_t tag, void* data, int64_t bytes) {
  ++outstanding_;
  requests_[i].Begin(false, global_rank, tag, data, bytes);
  p2p_->Irecv(&requests_[i]);
}

void PostedOp::OnDone(P2pRequest* request) {
  --outstanding_;
  if (started_ == 0) started_ = recorder_->Now();
  dirty_ = true;
  if (!request->status.ok()) broken_ = true;
}

char* PostedOp::Scratch(int64_t bytes) {
  scratch_.push_back(pool_->Get(bytes));
  return scratch_.back().data.get();
}

absl::Status PostedOp::CheckLength(int i, int from, int64_t expected) const {
  const int64_t got = requests_[i].bytes;
  if (got == expected) return absl::OkStatus();
  const int64_t sender = group_->members[from], receiver = group_->members[group_->rank];
  FailureInfo info;
  info.origin_rank = receiver;
  info.failed_ranks = {sender, receiver};
  info.group = group_->id;
  info.epoch = group_->epoch;
  info.sequence = descriptor_.sequence;
  const bool user = descriptor_.kind == MessageKind::kRecv;
  return WithFailureInfo(
      InvalidArgument("group ", group_->id, user ? ": " : absl::StrCat(", operation ", descriptor_.sequence, ", ", Name(descriptor_.kind), ": "),
                      "rank ", sender, " sent ", got == P2pRequest::kLonger ? absl::StrCat("more than ", expected) : absl::StrCat(got),
                      " bytes and rank ", receiver, " expected ", expected, user ? absl::StrCat(" (tag ", descriptor_.root, ")") : ""),
      info);
}

}  // namespace moe
