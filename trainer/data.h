// Text as bytes: training windows in an order keyed by the global sample index, and a held-out end for validation.
//
// Sample i of a run with seed s starts at byte  h(s, i) mod (n - S)  of the training part of n bytes, h being two rounds of
// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). So the data of a step depend on
// seed and step alone: not on ranks, not on micro-batches, not on where a run was resumed.
#ifndef MOE_TRAINER_DATA_H_
#define MOE_TRAINER_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/api.h"

namespace moe::trainer {

// Training batch of one rank: ids and labels [sequences, seq].
struct Sequences {
  std::vector<int32_t> ids, labels;
  int64_t count = 0;
};

class Corpus {
 public:
  // Reads data.path, or the King James Bible of Debian's package bible-kjv when it is empty. Misuse names the field, the value
  // and the remedy: missing, empty, or parts shorter than a sequence.
  static Result Open(const moe_config* config, Corpus* out);

  const std::string& name() const { return name_; }
  int64_t train_bytes() const { return train_; }
  int64_t held_out_bytes() const { return static_cast<int64_t>(text_.size()) - train_; }
  // Samples first .. first + count - 1 of the run.
  Sequences Train(int64_t first, int64_t count) const;
  // Windows of the held-out part that do not overlap, in order.
  int64_t num_held_out() const { return (held_out_bytes() - 1) / seq_; }
  Sequences HeldOut(int64_t first, int64_t count) const;

 private:
  void Append(int64_t at, Sequences* out) const;
  std::string name_, text_;
  int64_t train_ = 0, seq_ = 0;
  uint64_t seed_ = 0;
};

// Part `index` of `parts` of `total` things: [begin, end).
struct Share { int64_t begin, end; };
inline Share ShareOf(int64_t total, int64_t index, int64_t parts) { return {total * index / parts, total * (index + 1) / parts}; }

}  // namespace moe::trainer
#endif  // MOE_TRAINER_DATA_H_
