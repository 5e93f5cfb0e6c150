#include "trainer/session.h"

#include <algorithm>
#include <cstdio>

namespace moe::trainer {
namespace {

void ToStderr(void* user, int32_t level, const char* message) {
  const char* names[] = {"debug", "info", "warning", "error"};
  if (level >= static_cast<int32_t>(reinterpret_cast<intptr_t>(user))) std::fprintf(stderr, "moe: %s: %s\n", names[std::min(std::max(level, 0), 3)], message);
}

int32_t Level(const moe_config* c) {
  const std::string l = GetText(c, "log.level");
  return l == "debug" ? 0 : l == "info" ? 1 : l == "warning" ? 2 : 3;
}

}  // namespace

moe_batch ToBatch(const Sequences& s, int64_t seq, int64_t first_sample) {
  moe_batch b;
  MOE_INIT(b);
  b.ids = s.ids.data();
  b.labels = s.labels.data();
  b.batch = s.count;
  b.seq = seq;
  b.first_sample = first_sample;
  return b;
}

std::string Printable(const std::string& bytes) {
  std::string out = bytes;
  for (char& c : out)
    if (c != '\n' && c != '\t' && (c < 32 || c > 126)) c = '?';
  return out;
}

Result Session::Open(const moe_config* config, const RankPlace& place, std::unique_ptr<Session>* out, const std::string& flight_dir) {
  auto s = std::make_unique<Session>();
  s->place_ = place;
  s->seq_ = GetInt(config, "train.seq_len");
  moe_engine_options o;
  MOE_INIT(o);
  o.rank = place.rank;
  o.world_size = place.world;
  o.local_world_size = place.local_world;
  o.inproc = place.inproc;
  o.host = place.host.empty() ? nullptr : place.host.c_str();
  o.port = place.port;
  o.job_id = place.job_id.c_str();
  o.flight_dir = flight_dir.empty() ? nullptr : flight_dir.c_str();
  // What all ranks would say is said once; warnings and errors may be one rank's own.
  o.log = ToStderr;
  o.log_user_data = reinterpret_cast<void*>(static_cast<intptr_t>(place.leader() ? Level(config) : std::max(Level(config), 2)));
  moe_engine* engine = nullptr;
  moe_model* model = nullptr;
  moe_group* world = nullptr;
  MOE_TRY(Check(moe_engine_create(config, &o, &engine)));
  s->engine_.reset(engine);
  MOE_TRY(Check(moe_group_world(engine, &world)));
  s->world_.reset(world);
  MOE_TRY(Check(moe_model_create(engine, &model)));
  s->model_.reset(model);
  MOE_TRY(Check(moe_model_data_rank(model, &s->dp_rank_, &s->dp_size_)));
  *out = std::move(s);
  return {};
}

Session::~Session() = default;

Result Session::Evaluate(const Corpus& corpus, int64_t sequences, double* loss) {
  constexpr int64_t kPerRank = 8;   // sequences of a rank at a time: bounds memory
  const int64_t total = sequences > 0 ? std::min(sequences, corpus.num_held_out()) : corpus.num_held_out();
  double sum = 0;
  int64_t labels = 0;
  for (int64_t begin = 0; begin < total; begin += kPerRank * dp_size_) {
    const Share mine = ShareOf(std::min(kPerRank * dp_size_, total - begin), dp_rank_, dp_size_);
    const Sequences s = corpus.HeldOut(begin + mine.begin, mine.end - mine.begin);
    const moe_batch b = ToBatch(s, seq_, 0);
    double part = 0;
    int64_t n = 0;
    MOE_TRY(CheckRunning(moe_model_evaluate(model_.get(), &b, &part, &n)));
    sum += part;
    labels += n;
  }
  *loss = labels > 0 ? sum / static_cast<double>(labels) : 0.0;
  return {};
}

Result Session::Generate(const std::string& prompt, int64_t tokens, double temperature, uint64_t seed, std::string* text) {
  std::vector<int32_t> ids, out(tokens);
  for (unsigned char c : prompt) ids.push_back(c);
  if (ids.empty()) ids.push_back('\n');
  MOE_TRY(CheckRunning(moe_model_generate(model_.get(), ids.data(), static_cast<int64_t>(ids.size()), tokens, temperature, seed, out.data())));
  text->clear();
  for (int32_t t : out) text->push_back(static_cast<char>(t < 256 ? t : '?'));
  return {};
}

Result Session::AgreeToStop(bool* stop) {
  int32_t flag = StopRequested() ? 1 : 0;
  MOE_TRY(CheckRunning(moe_group_all_reduce(world_.get(), &flag, 1, MOE_INT32, MOE_MAX, nullptr)));
  *stop = flag != 0;
  return {};
}

Result Session::Close() { return CheckRunning(moe_engine_shutdown(engine_.get())); }

Result Session::End(Result r) {
  if (r.ok() || r.exit_code == 130) return r;
  if (!r.from_library) moe_status_destroy(moe_engine_abort(engine_.get(), r.message.c_str()));
  // An error that all ranks have agreed on leaves the communication whole: leave together, so that nobody is taken for dead while others
  // still read the message. After an abort this returns at once.
  moe_status_destroy(moe_engine_shutdown(engine_.get()));
  return r;
}

}  // namespace moe::trainer
