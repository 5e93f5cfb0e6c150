// A small model on one rank for tests of the engine: configuration, modules, device, batches of random text.
#ifndef MOE_TESTS_ENGINE_MODEL_FIXTURE_H_
#define MOE_TESTS_ENGINE_MODEL_FIXTURE_H_

#include <memory>
#include <vector>

#include "core/base/random.h"
#include "core/model/model.h"
#include "experts/registry.h"

namespace moe {

// 2 layers, d_model 12, 3/1 heads, 4 experts top 2, d_hidden 10, vocabulary 11, sequences of 5: small enough for finite
// differences over every parameter, unequal enough to catch mixed-up dimensions.
inline config::Config TinyConfig() {
  config::Config c;
  auto* m = c.mutable_model();
  m->set_vocab_size(11);
  m->set_num_layers(2);
  m->set_d_model(12);
  m->set_num_heads(3);
  m->set_num_kv_heads(1);
  m->set_num_global_experts(4);
  m->set_top_k(2);
  m->set_d_hidden(10);
  c.mutable_train()->set_seq_len(5);
  c.mutable_train()->set_global_batch(3);
  c.mutable_gate()->set_aux_loss_coef(0.3);
  c.mutable_gate()->set_z_loss_coef(0.2);
  c.mutable_optimizer()->set_warmup_steps(2);
  c.set_steps(10);
  c.set_seed(3);
  return c;
}

struct Text {
  std::vector<int32_t> ids, labels;
  int64_t seq;
  Batch Part(int64_t begin, int64_t n) const { return {ids.data() + begin * seq, labels.data() + begin * seq, n, seq, begin}; }
};

// `batch` sequences; some labels are ignored.
inline Text RandomText(const config::Config& c, int64_t batch, uint64_t seed) {
  Text t;
  t.seq = c.train().seq_len();
  const uint64_t key = StreamKey(seed, "text");
  for (int64_t i = 0; i < batch * t.seq; ++i) {
    t.ids.push_back(static_cast<int32_t>(RandomBelow(key, 2 * i, c.model().vocab_size())));
    t.labels.push_back(i % 7 == 3 ? -100 : static_cast<int32_t>(RandomBelow(key, 2 * i + 1, c.model().vocab_size())));
  }
  return t;
}

struct LoneModel {
  std::unique_ptr<Device> device;
  std::unique_ptr<Registry> modules = MakeDefaultRegistry();
  std::unique_ptr<Model> model;
};

inline absl::StatusOr<LoneModel> MakeLone(const config::Config& c, std::unique_ptr<Device> device) {
  LoneModel l;
  l.device = std::move(device);
  ModelContext context;
  context.device = l.device.get();
  context.modules = l.modules.get();
  MOE_ASSIGN_OR_RETURN(l.model, Model::Make(c, context));
  return l;
}

}  // namespace moe
#endif  // MOE_TESTS_ENGINE_MODEL_FIXTURE_H_
