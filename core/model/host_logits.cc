// Logits for the caller: computed by the last pipeline stage, whose ranks have parts of the sequences (context parallelism) and
// of the vocabulary (tensor parallelism), put together in host memory on every rank that shares the batch.
#include <cstring>

#include "core/model/model.h"

namespace moe {
namespace {

// Rows of a rank's part that are asked for.
std::vector<TokenLayout::Place> Wanted(const TokenLayout& layout, int64_t cp_rank, bool last_only, int64_t seq) {
  std::vector<TokenLayout::Place> out;
  for (const TokenLayout::Place& p : layout.PlacesOf(cp_rank))
    if (!last_only || p.position == seq - 1) out.push_back(p);
  return out;
}

}  // namespace

absl::Status Model::HostLogits(const Batch& b, bool last_only, std::vector<char>* out) {
  MOE_ASSIGN_OR_RETURN(const Agreed agreed, Begin(b, false));
  const Parallel& ranks = context_.ranks;
  const int64_t V = config_.model().vocab_size(), element = SizeOf(store_->dtype()), tp = ranks.tp(), cp = ranks.cp(), P = ranks.stages();
  StepWork work = WorkOf(b, agreed);
  std::vector<char> mine;   // [wanted rows of all micro-batches, this rank's columns]
  work.head = [&](const ModuleContext& ctx, StageChunk* chunk, const ChunkPass& pass, int64_t) -> absl::Status {
    std::vector<int32_t> rows;
    for (const auto& p : Wanted(pass.layout, ranks.cp_rank(), last_only, b.seq)) rows.push_back(static_cast<int32_t>(p.row));
    TensorView logits;
    MOE_RETURN_IF_ERROR(chunk->Logits(ctx, pass, rows, &logits));
    const size_t at = mine.size();
    mine.resize(at + logits.bytes());
    return logits.bytes() > 0 ? context_.device->CopyToHost(mine.data() + at, logits) : absl::OkStatus();
  };
  MOE_RETURN_IF_ERROR(RunForward(&work));

  // What each rank of the last stage has: places in the order of its rows.
  struct Block { int64_t cp_rank, begin, width; };   // columns
  std::vector<Block> blocks;                         // by index in the replica's group: tp fastest, then cp
  std::vector<std::vector<TokenLayout::Place>> places(cp);
  for (int64_t c = 0; c < cp; ++c) {
    int64_t sequences = 0;
    for (const Batch& m : work.micro) {
      for (TokenLayout::Place p : Wanted(TokenLayout(m, ranks), c, last_only, b.seq)) {
        p.sequence += sequences;
        places[c].push_back(p);
      }
      sequences += m.batch;
    }
    for (int64_t t = 0; t < tp; ++t) blocks.push_back({c, ShareBegin(V, tp, t), ShareSize(V, tp, t)});
  }
  std::vector<char> all;
  const bool last = ranks.stage() == P - 1;
  if (Communicator* replica = ranks.group(GroupKind::kReplica)) {
    const int64_t n = replica->size(), first_of_last = n - static_cast<int64_t>(blocks.size());
    std::vector<int64_t> send_bytes(n, last ? static_cast<int64_t>(mine.size()) : 0), send_offsets(n, 0), recv_bytes(n, 0), recv_offsets(n, 0);
    int64_t at = 0;
    for (int64_t r = 0; r < n; ++r) {
      recv_offsets[r] = at;
      if (r >= first_of_last) recv_bytes[r] = static_cast<int64_t>(places[blocks[r - first_of_last].cp_rank].size()) * blocks[r - first_of_last].width * element;
      at += recv_bytes[r];
    }
    all.resize(at);
    AllToAllV a;
    a.send = mine.data();
    a.send_bytes = send_bytes;
    a.send_offsets = send_offsets;
    a.recv = all.data();
    a.recv_bytes = recv_bytes;
    a.recv_offsets = recv_offsets;
    a.counts_agreed = true;
    MOE_RETURN_IF_ERROR(Annotate(RunAllToAllV(replica->For("logits"), a), "logits"));
  } else {
    all = std::move(mine);
  }
  out->assign(b.batch * (last_only ? 1 : b.seq) * V * element, 0);
  const char* from = all.data();
  for (const Block& block : blocks) {
    for (const TokenLayout::Place& p : places[block.cp_rank]) {
      const int64_t row = last_only ? p.sequence : p.sequence * b.seq + p.position;
      std::memcpy(out->data() + (row * V + block.begin) * element, from, block.width * element);
      from += block.width * element;
    }
  }
  return absl::OkStatus();
}

}  // namespace moe
