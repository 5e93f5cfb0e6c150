#include "transport/ucx/ucx.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "transport/bootstrap/control_plane.h"
#include "transport/bytes.h"
#include "transport/p2p_transport.h"
#include "transport/ucx/api.h"
#include "transport/ucx/host.h"
#include "transport/ucx/lanes.h"
#include "transport/ucx/profile.h"
#include "transport/ucx/ucx_p2p.h"

namespace moe {
namespace {

// Of the group that only checks that messages get through; users' ids are not so small.
constexpr int64_t kCheckGroup = std::numeric_limits<int64_t>::min();

// A value or an error of this rank to all ranks: all get the values of all, or the same error.
absl::StatusOr<std::vector<std::string>> AllGatherOrFail(ControlPlane* control, const absl::StatusOr<std::string>& mine, absl::Time deadline) {
  std::string text;
  PutInt(&text, static_cast<int64_t>(mine.status().code()));
  PutText(&text, mine.ok() ? absl::string_view(*mine) : mine.status().message());
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> all, control->AllGather(text, deadline));
  std::vector<std::string> values(all.size());
  for (size_t r = 0; r < all.size(); ++r) {
    ByteReader in(all[r]);
    int64_t code = 0;
    if (!in.Int(&code) || !in.Text(&values[r])) return Internal("rendezvous: rank ", r, " sent what cannot be read");
    if (code != 0) {
      FailureInfo info;
      info.origin_rank = static_cast<int64_t>(r);
      info.failed_ranks = {info.origin_rank};
      return WithFailureInfo(absl::Status(static_cast<absl::StatusCode>(code), absl::StrCat("rank ", r, ": ", values[r])), info);
    }
  }
  return values;
}

class Starter {
 public:
  Starter(const UcxOptions& ucx, const RendezvousOptions& rendezvous, LogSink log)
      : ucx_(ucx), rendezvous_(rendezvous), log_(std::move(log)), deadline_(absl::Now() + rendezvous.timeout) {}

  absl::StatusOr<std::unique_ptr<Transport>> Run() {
    MOE_ASSIGN_OR_RETURN(api_, LoadUcx(ucx_.library));
    MOE_ASSIGN_OR_RETURN(control_, Rendezvous(rendezvous_, absl::StrCat("UCX ", api_->version), log_));
    MOE_RETURN_IF_ERROR(MeetHosts());
    MOE_ASSIGN_OR_RETURN(std::unique_ptr<UcxP2p> p2p, Open());
    DescribeLanes(p2p.get());

    EngineOptions options;
    options.epoch = rendezvous_.epoch;
    options.timeout = rendezvous_.timeout;
    options.flight_dir = ucx_.flight_dir;
    if (static_cast<unsigned>(ranks_here_) > std::thread::hardware_concurrency()) options.spins = 5;  // spinning keeps the peer from its core
    UcxP2p* links = p2p.get();
    auto transport = std::make_unique<P2pTransport>(std::move(p2p), std::move(control_), options, log_);
    MOE_RETURN_IF_ERROR(Check(transport.get(), links));
    return std::unique_ptr<Transport>(std::move(transport));
  }

 private:
  // Who shares a machine with whom, may processes read each other's memory, is there room.
  absl::Status MeetHosts() {
    const CmaProbe probe;
    std::string card;
    PutText(&card, HostIdentity());
    PutText(&card, probe.Card());
    MOE_ASSIGN_OR_RETURN(const std::vector<std::string> cards, control_->AllGather(card, deadline_));
    std::vector<std::string> probes(cards.size());
    hosts_.resize(cards.size());
    for (size_t r = 0; r < cards.size(); ++r) {
      ByteReader in(cards[r]);
      if (!in.Text(&hosts_[r]) || !in.Text(&probes[r])) return Internal("rendezvous: rank ", r, " sent what cannot be read");
    }
    const std::string& here = hosts_[rendezvous_.rank];
    ranks_here_ = std::count(hosts_.begin(), hosts_.end(), here);
    size_t neighbour = static_cast<size_t>(rendezvous_.rank);
    do neighbour = (neighbour + 1) % hosts_.size();
    while (hosts_[neighbour] != here);
    absl::StatusOr<std::string> mine = CmaProbe::CanRead(probes[neighbour]) ? "1" : "0";
    if (UsesSharedMemory(ChooseTls(ucx_, true)) && ranks_here_ > 1) {
      if (absl::Status s = CheckSharedMemory("/dev/shm", ranks_here_); !s.ok()) mine = s;
    }
    MOE_ASSIGN_OR_RETURN(const std::vector<std::string> answers, AllGatherOrFail(control_.get(), mine, deadline_));
    for (size_t r = 0; r < answers.size(); ++r) {
      if (answers[r] != "1") cma_permitted_ = false;
    }
    if (!cma_permitted_) {
      Log(log_, LogLevel::kWarning, "ucx: a process may not read another's memory here (process_vm_readv: container or kernel setting), so large messages "
                                    "between ranks of one machine are copied twice; docker run --cap-add=SYS_PTRACE permits it");
    }
    return absl::OkStatus();
  }

  // A message to and from everybody: an interface or firewall that lets nothing through is found now, by name. Then until the
  // connections are complete everywhere.
  absl::Status Check(Transport* transport, UcxP2p* links) {
    std::vector<int64_t> everybody;
    for (int64_t r = 0; r < rendezvous_.world_size; ++r) everybody.push_back(r);
    links->StartSettling(rendezvous_.epoch);
    auto group = transport->CreateGroup(kCheckGroup, everybody);
    if (absl::IsDeadlineExceeded(group.status())) {
      return Annotate(group.status(), "no data come through UCX (check transport.net_device, transport.ucx_tls and firewalls)");
    }
    MOE_RETURN_IF_ERROR(group.status());
    for (int32_t all = 0; all != 1;) {
      all = links->Settled() ? 1 : absl::Now() > deadline_ ? -1 : 0;
      MOE_RETURN_IF_ERROR(AllReduce(group->get(), &all, 1, DType::kI32, ReduceOp::kMin));
      if (all < 0) return absl::DeadlineExceededError("UCX: the connections between the ranks were not complete in time (check transport.net_device and firewalls)");
    }
    links->SetSettled();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<UcxP2p>> Open() {
    const std::string tls = ChooseTls(ucx_, cma_permitted_);
    absl::StatusOr<std::string> address;
    std::unique_ptr<UcxP2p> p2p;
    if (absl::StatusOr<UcxConfig> config = MakeConfig(api_, ucx_, tls, log_); !config.ok()) {
      address = config.status();
    } else if (auto made = UcxP2p::Create(api_, config->get(), rendezvous_.rank, rendezvous_.world_size); !made.ok()) {
      address = made.status();
    } else {
      p2p = *std::move(made);
      address = p2p->address();
    }
    MOE_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, AllGatherOrFail(control_.get(), address, deadline_));
    const absl::Status connected = p2p->Connect(addresses);
    MOE_RETURN_IF_ERROR(AllGatherOrFail(control_.get(), connected.ok() ? absl::StatusOr<std::string>("") : absl::StatusOr<std::string>(connected), deadline_).status());
    return p2p;
  }

  void DescribeLanes(UcxP2p* p2p) {
    std::vector<std::string> lines(hosts_.size());
    for (size_t r = 0; r < hosts_.size(); ++r) {
      if (static_cast<int64_t>(r) == rendezvous_.rank) continue;
      const Lanes lanes = ParseLanes(p2p->EndpointInfo(static_cast<int64_t>(r)));
      lines[r] = lanes.text;
      if (hosts_[r] == hosts_[rendezvous_.rank] && !lanes.shared_memory) {
        absl::StrAppend(&lines[r], " (WARNING: on this machine, but not over shared memory)");
        Log(log_, LogLevel::kWarning, absl::StrCat("ucx: rank ", r, " is on the same machine but is reached over ", lanes.text, "; the transports in use are ",
                                                   ChooseTls(ucx_, cma_permitted_), " (transport.ucx_tls): posix is the fast one"));
      }
    }
    p2p->set_lanes(std::move(lines));
  }

  const UcxOptions ucx_;
  const RendezvousOptions rendezvous_;
  const LogSink log_;
  const absl::Time deadline_;
  std::shared_ptr<const UcxApi> api_;
  std::unique_ptr<ControlPlane> control_;
  std::vector<std::string> hosts_;
  int64_t ranks_here_ = 1;
  bool cma_permitted_ = true;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& options, const RendezvousOptions& rendezvous, LogSink log) {
  return Starter(options, rendezvous, std::move(log)).Run();
}

UcxInfo UcxProbe(const std::string& library) {
  UcxInfo info;
  const absl::StatusOr<std::shared_ptr<const UcxApi>> api = LoadUcx(library);
  if (api.ok()) {
    info.found = true;
    info.version = (*api)->version;
    info.path = (*api)->path;
  } else {
    info.remedy = std::string(api.status().message());
  }
  return info;
}

}  // namespace moe
