#include "core/checkpoint/block.h"

#include <algorithm>

namespace moe {
namespace {

// Sweeps over dimension d of the blocks `among`, which all cover region's dimensions before d, and descends into every strip
// between two borders. A tensor cut as a grid costs little more than its number of blocks.
absl::optional<TilingFault> Sweep(const std::vector<int64_t>& shape, const std::vector<Block>& blocks, std::vector<size_t> among, size_t d, Block* region) {
  if (d == shape.size()) {
    if (among.size() == 1) return absl::nullopt;
    std::sort(among.begin(), among.end());
    return TilingFault{*region, std::move(among)};
  }
  std::sort(among.begin(), among.end(), [&](size_t a, size_t b) { return blocks[a].begin[d] < blocks[b].begin[d]; });
  std::vector<size_t> active;
  size_t next = 0;
  for (int64_t at = 0; at < shape[d];) {
    active.erase(std::remove_if(active.begin(), active.end(), [&](size_t i) { return blocks[i].end(d) <= at; }), active.end());
    for (; next < among.size() && blocks[among[next]].begin[d] == at; ++next) active.push_back(among[next]);
    int64_t end = next < among.size() ? blocks[among[next]].begin[d] : shape[d];
    for (size_t i : active) end = std::min(end, blocks[i].end(d));
    region->begin[d] = at;
    region->shape[d] = end - at;
    if (active.empty()) {
      for (size_t k = d + 1; k < shape.size(); ++k) {
        region->begin[k] = 0;
        region->shape[k] = shape[k];
      }
      return TilingFault{*region, {}};
    }
    if (auto fault = Sweep(shape, blocks, active, d + 1, region)) return fault;
    at = end;
  }
  return absl::nullopt;
}

// One dimension of a copy, bytes from one index to the next there and here.
struct Axis { int64_t count, from, to; };

// Runs of bytes, and the axes over which they repeat, outermost first.
class Copy {
 public:
  Copy(const ReadRange& read, char* out) : read_(read), out_(out) {}

  void Plan(const Block& stored, const Block& wanted, const Block& common, int64_t element_size) {
    run_ = element_size;
    int64_t from = element_size, to = element_size;
    for (size_t d = common.shape.size(); d-- > 0;) {
      from_ += (common.begin[d] - stored.begin[d]) * from;
      to_ += (common.begin[d] - wanted.begin[d]) * to;
      const int64_t n = common.shape[d];
      if (axes_.empty() && from == run_ && to == run_) run_ *= n;   // goes on without a gap in both
      else if (n > 1) axes_.insert(axes_.begin(), {n, from, to});
      from *= stored.shape[d];
      to *= wanted.shape[d];
    }
    span_.assign(axes_.size() + 1, run_);
    near_.assign(axes_.size() + 1, true);
    for (size_t a = axes_.size(); a-- > 0;) {
      near_[a] = near_[a + 1] && axes_[a].from - span_[a + 1] <= kGap;
      span_[a] = (axes_[a].count - 1) * axes_[a].from + span_[a + 1];
    }
  }

  absl::Status Run() { return Read(0, from_, out_ + to_); }

 private:
  // A call costs about as much as reading so many bytes.
  static constexpr int64_t kGap = 16 << 10;
  static constexpr int64_t kScratch = 1 << 20;

  absl::Status Read(size_t a, int64_t from, char* out) {
    if (a == axes_.size()) return read_(from, out, run_);
    const Axis& x = axes_[a];
    // Several indices at once, with the gaps between.
    int64_t together = near_[a] && span_[a + 1] <= kScratch ? 1 + (kScratch - span_[a + 1]) / x.from : 1;
    together = std::min(together, x.count);
    for (int64_t i = 0; i < x.count; i += together) {
      const int64_t n = std::min(together, x.count - i);
      if (n == 1) {
        MOE_RETURN_IF_ERROR(Read(a + 1, from + i * x.from, out + i * x.to));
        continue;
      }
      const int64_t bytes = (n - 1) * x.from + span_[a + 1];
      scratch_.resize(std::max(scratch_.size(), static_cast<size_t>(bytes)));
      MOE_RETURN_IF_ERROR(read_(from + i * x.from, scratch_.data(), bytes));
      for (int64_t k = 0; k < n; ++k) Scatter(a + 1, scratch_.data() + k * x.from, out + (i + k) * x.to);
    }
    return absl::OkStatus();
  }

  void Scatter(size_t a, const char* from, char* out) {
    if (a == axes_.size()) {
      std::copy(from, from + run_, out);
      return;
    }
    for (int64_t i = 0; i < axes_[a].count; ++i) Scatter(a + 1, from + i * axes_[a].from, out + i * axes_[a].to);
  }

  const ReadRange& read_;
  char* const out_;
  int64_t run_ = 0, from_ = 0, to_ = 0;
  std::vector<Axis> axes_;
  std::vector<int64_t> span_;   // of the stored bytes from the first to the last, of axes a and inner
  std::vector<bool> near_;      // no gap of axes a and inner is large
  std::vector<char> scratch_;
};

}  // namespace

bool Block::empty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

std::string Block::DebugString() const {
  std::string out = "[";
  for (size_t d = 0; d < shape.size(); ++d) absl::StrAppend(&out, d ? "," : "", begin[d], ":", end(d));
  return out + "]";
}

Block WholeBlock(const std::vector<int64_t>& shape) { return {std::vector<int64_t>(shape.size(), 0), shape}; }

bool LiesInside(const Block& block, const std::vector<int64_t>& shape) {
  if (block.begin.size() != shape.size() || block.shape.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (block.begin[d] < 0 || block.shape[d] < 0 || block.shape[d] > shape[d] || block.begin[d] > shape[d] - block.shape[d]) return false;
  return true;
}

absl::optional<Block> Intersection(const Block& a, const Block& b) {
  Block out;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const int64_t begin = std::max(a.begin[d], b.begin[d]), end = std::min(a.end(d), b.end(d));
    if (begin >= end) return absl::nullopt;
    out.begin.push_back(begin);
    out.shape.push_back(end - begin);
  }
  return out;
}

absl::optional<TilingFault> FindTilingFault(const std::vector<int64_t>& shape, const std::vector<Block>& blocks) {
  if (WholeBlock(shape).empty()) return absl::nullopt;
  std::vector<size_t> among;
  for (size_t i = 0; i < blocks.size(); ++i)
    if (!blocks[i].empty()) among.push_back(i);
  Block region = WholeBlock(shape);
  return Sweep(shape, blocks, std::move(among), 0, &region);
}

absl::Status CopyCommon(const Block& stored, const Block& wanted, int64_t element_size, const ReadRange& read, char* out) {
  const absl::optional<Block> common = Intersection(stored, wanted);
  if (!common) return absl::OkStatus();
  Copy copy(read, out);
  copy.Plan(stored, wanted, *common, element_size);
  return copy.Run();
}

}  // namespace moe
