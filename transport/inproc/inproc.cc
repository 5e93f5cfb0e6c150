#include "transport/inproc/inproc.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "transport/inproc/inproc_p2p.h"
#include "transport/p2p_transport.h"
#include "transport/tag.h"

namespace moe {

struct InprocWorld::State {
  explicit State(int64_t n) : boxes(n), pools(n), made(n, false), left(n, false), controls(n, nullptr), early(n) {}

  std::vector<Mailbox> boxes;
  std::vector<ParcelPool> pools;

  std::mutex mu;
  std::vector<bool> made, left;
  std::vector<Control*> controls;                // of the ranks that are here
  std::vector<std::vector<Notice>> early;        // for ranks that have not come yet
};

namespace {

class InprocControl final : public Control {
 public:
  InprocControl(std::shared_ptr<InprocWorld> world, int64_t rank) : world_(std::move(world)), rank_(rank) {}

  void Tell(const Notice& notice) override {
    std::lock_guard<std::mutex> lock(state().mu);
    TellLocked(notice);
  }

  void Leave() override {
    std::lock_guard<std::mutex> lock(state().mu);
    state().left[rank_] = true;
    if (std::find(state().left.begin(), state().left.end(), false) != state().left.end()) return;
    Notice n;
    n.kind = Notice::Kind::kAllLeft;
    n.rank = rank_;
    inbox()->Push(n);
    TellLocked(n);
  }

  std::vector<int64_t> NotLeft() override {
    std::lock_guard<std::mutex> lock(state().mu);
    std::vector<int64_t> ranks;
    for (int64_t r = 0; r < world_->world_size(); ++r) {
      if (!state().left[r]) ranks.push_back(r);
    }
    return ranks;
  }

  void Close(bool in_order) override {
    std::lock_guard<std::mutex> lock(state().mu);
    state().controls[rank_] = nullptr;
    if (in_order) return;
    Notice n;
    n.kind = Notice::Kind::kFailAll;
    n.rank = rank_;
    FailureInfo info;
    info.origin_rank = rank_;
    info.failed_ranks = {rank_};
    n.status = WithFailureInfo(absl::UnavailableError(absl::StrCat("rank ", rank_, " left without Shutdown")), info);
    TellLocked(n);
  }

 private:
  InprocWorld::State& state() { return *world_->state(); }
  void TellLocked(const Notice& notice) {
    for (int64_t r = 0; r < world_->world_size(); ++r) {
      if (r == rank_) continue;
      if (state().controls[r] != nullptr) state().controls[r]->inbox()->Push(notice);
      else if (!state().made[r]) state().early[r].push_back(Detached(notice));
    }
  }

  const std::shared_ptr<InprocWorld> world_;
  const int64_t rank_;
};

}  // namespace

InprocWorld::InprocWorld(int64_t world_size, absl::Duration timeout)
    : world_size_(world_size), timeout_(timeout), state_(std::make_unique<State>(std::clamp<int64_t>(world_size, 0, kMaxWorldSize))) {}
InprocWorld::~InprocWorld() = default;

absl::StatusOr<std::unique_ptr<Transport>> MakeInprocTransport(std::shared_ptr<InprocWorld> world, int64_t rank, const std::string& flight_dir) {
  const int64_t n = world->world_size();
  if (n < 1 || n > kMaxWorldSize) return InvalidArgument("inproc: world_size is ", n, "; it must be 1 .. ", kMaxWorldSize);
  if (rank < 0 || rank >= n) return InvalidArgument("inproc: rank is ", rank, "; ranks are 0 .. ", n - 1);
  InprocWorld::State* state = world->state();
  auto control = std::make_shared<InprocControl>(world, rank);
  {
    std::lock_guard<std::mutex> lock(state->mu);
    if (state->made[rank]) return absl::AlreadyExistsError(absl::StrCat("inproc: rank ", rank, " exists already; a world is for one job, make a new one"));
    state->made[rank] = true;
    state->controls[rank] = control.get();
    for (const Notice& notice : state->early[rank]) control->inbox()->Push(notice);
    state->early[rank].clear();
  }
  EngineOptions options;
  options.timeout = world->timeout();
  options.flight_dir = flight_dir;
  if (n > static_cast<int64_t>(std::thread::hardware_concurrency())) options.spins = 5;  // more threads than cores: spinning keeps the peer away
  auto p2p = std::make_unique<InprocP2p>(world, rank, &state->boxes, &state->pools[rank]);
  return std::make_unique<P2pTransport>(std::move(p2p), std::move(control), options, LogSink());
}

}  // namespace moe
