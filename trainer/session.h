// One rank with its engine, model and groups, as every command needs them.
#ifndef MOE_TRAINER_SESSION_H_
#define MOE_TRAINER_SESSION_H_

#include <memory>

#include "trainer/data.h"
#include "trainer/launcher.h"

namespace moe::trainer {

class Session {
 public:
  // Collective. `flight_dir`: of the flight recorder's file; empty: none.
  static Result Open(const moe_config* config, const RankPlace& place, std::unique_ptr<Session>* out, const std::string& flight_dir = "");
  ~Session();

  moe_engine* engine() { return engine_.get(); }
  moe_model* model() { return model_.get(); }
  moe_group* world() { return world_.get(); }
  int64_t dp_rank() const { return dp_rank_; }
  int64_t dp_size() const { return dp_size_; }
  bool leader() const { return place_.leader(); }

  // Collective. Mean cross-entropy over the first `sequences` held-out windows (0: all).
  Result Evaluate(const Corpus& corpus, int64_t sequences, double* loss);
  // Collective. Text that follows the prompt.
  Result Generate(const std::string& prompt, int64_t tokens, double temperature, uint64_t seed, std::string* text);
  // Collective. True when any rank was asked to stop: all see the same answer.
  Result AgreeToStop(bool* stop);
  // Collective. Leaves in good order.
  Result Close();
  // Passes `r` on. What has failed on this rank alone ends the job of all ranks with its message.
  Result End(Result r);

 private:
  RankPlace place_;
  Engine engine_;
  Model model_;
  Group world_;
  int64_t dp_rank_ = 0, dp_size_ = 1, seq_ = 0;
};

moe_batch ToBatch(const Sequences& s, int64_t seq, int64_t first_sample);
// Bytes as text for a terminal: what is not printable becomes '?'.
std::string Printable(const std::string& bytes);

}  // namespace moe::trainer
#endif  // MOE_TRAINER_SESSION_H_
