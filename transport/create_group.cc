#include "transport/create_group.h"

#include <algorithm>
#include <utility>

#include "transport/p2p_communicator.h"
#include "transport/tag.h"

namespace moe {
namespace {

// What each member says to every other. Tags have 16 bits for a group while ids are free, so the members agree on a
// number: the largest of what each would take next. Every member goes on from there, so no rank is ever in two groups
// with one number.
struct Card {
  int64_t id, size, members_hash, number, epoch;
};

int64_t Hash(absl::Span<const int64_t> members) {
  uint64_t h = members.size();
  for (int64_t m : members) h = (h ^ static_cast<uint64_t>(m)) * 0x9e3779b97f4a7c15u + (h >> 29);
  return static_cast<int64_t>(h);
}

class CreateGroupOp final : public TransportOp {
 public:
  CreateGroupOp(std::shared_ptr<Group> group, int64_t number)
      : TransportOp(group, TransportOpKind::kNone, 2 * group->size()), mine_{group->id, group->size(), Hash(group->members), number, group->epoch}, cards_(group->size()) {}

  absl::Status Start() override {
    for (int i = 0; i < size(); ++i) {
      if (i == rank()) continue;
      Irecv(size() + i, group().members[i], CreateGroupTag(mine_.epoch, mine_.id, group().members[i]), &cards_[i], sizeof(Card));
    }
    for (int k = 1; k < size(); ++k) {
      const int i = (rank() + k) % size();
      Isend(i, group().members[i], CreateGroupTag(mine_.epoch, mine_.id, group().members[rank()]), &mine_, sizeof(Card));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Advance() override {
    if (outstanding() > 0) return false;
    number_ = mine_.number;
    for (int i = 0; i < size(); ++i) {
      if (i == rank()) continue;
      const Card& c = cards_[i];
      const int64_t them = group().members[i], me = group().members[rank()];
      if (c.id != mine_.id || c.size != mine_.size || c.members_hash != mine_.members_hash || c.epoch != mine_.epoch) {
        FailureInfo info;
        info.origin_rank = me;
        info.failed_ranks = {std::min(me, them), std::max(me, them)};
        info.group = mine_.id;
        info.epoch = mine_.epoch;
        return WithFailureInfo(InvalidArgument("CreateGroup: rank ", me, " makes group ", mine_.id, " at epoch ", mine_.epoch, " with ", mine_.size,
                                               " members, rank ", them, " makes group ", c.id, " at epoch ", c.epoch, " with ", c.size,
                                               c.size == mine_.size && c.id == mine_.id && c.epoch == mine_.epoch ? " other members" : " members",
                                               "; all members must give the same id and members"), info);
      }
      number_ = std::max(number_, c.number);
    }
    return true;
  }

  int64_t number() const { return number_; }
  std::vector<int64_t> Missing() const {
    std::vector<int64_t> missing;
    for (int i = 0; i < size(); ++i) {
      if (i != rank() && !done(size() + i)) missing.push_back(group().members[i]);
    }
    return missing;
  }

 private:
  const Card mine_;
  std::vector<Card> cards_;
  int64_t number_ = -1;
};

absl::Status CheckMembers(int64_t id, absl::Span<const int64_t> members, int64_t rank, int64_t world_size) {
  if (members.empty()) return InvalidArgument("CreateGroup ", id, ": no members");
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] < 0 || members[i] >= world_size) return InvalidArgument("CreateGroup ", id, ": member ", members[i], " is not a rank of the job (0 .. ", world_size - 1, ")");
    if (i > 0 && members[i] <= members[i - 1]) return InvalidArgument("CreateGroup ", id, ": members must ascend, but ", members[i], " follows ", members[i - 1]);
  }
  if (std::find(members.begin(), members.end(), rank) == members.end()) return InvalidArgument("CreateGroup ", id, ": rank ", rank, " is not one of its members");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateGroup(const std::shared_ptr<Engine>& engine, int64_t id, absl::Span<const int64_t> members) {
  auto group = std::make_shared<Group>();
  group->id = id;
  group->epoch = engine->epoch();
  group->members.assign(members.begin(), members.end());
  MOE_RETURN_IF_ERROR(engine->GroupStatus(id));
  if (absl::Status s = CheckMembers(id, members, engine->p2p().rank(), engine->p2p().world_size()); !s.ok()) {
    engine->AbortGroup(*group, s);
    return s;
  }
  group->rank = static_cast<int>(std::find(members.begin(), members.end(), engine->p2p().rank()) - members.begin());
  MOE_ASSIGN_OR_RETURN(const int64_t number, engine->NextGroupNumber());
  engine->Register(group);
  auto communicator = std::make_unique<P2pCommunicator>(engine, group);

  auto op = std::make_unique<CreateGroupOp>(group, number);
  CreateGroupOp* meeting = op.get();
  MOE_ASSIGN_OR_RETURN(WorkPtr work, engine->Post(std::move(op)));
  absl::Status status = engine->Wait(meeting, absl::Now() + engine->timeout());
  MOE_ASSIGN_OR_RETURN(const bool finished, work->Test());
  if (!finished) {
    FailureInfo info;
    info.origin_rank = engine->p2p().rank();
    info.failed_ranks = meeting->Missing();
    info.group = id;
    info.epoch = group->epoch;
    std::string who;
    for (int64_t r : info.failed_ranks) absl::StrAppend(&who, who.empty() ? "" : ", ", r);
    status = WithFailureInfo(absl::DeadlineExceededError(absl::StrCat("CreateGroup ", id, ": waited ", absl::FormatDuration(engine->timeout()),
                                                                      " for its members; missing ranks: ", who)), info);
    engine->AbortGroup(*group, status);
    engine->Cancel(meeting, status);
    return status;
  }
  MOE_RETURN_IF_ERROR(status);
  engine->SetNumber(group, meeting->number());
  return communicator;
}

}  // namespace moe
