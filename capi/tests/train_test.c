/* Plain C trains a model: on one rank, on two ranks that are threads, over unequal shares; saves, goes on, generates. */
#include <math.h>

#include "capi/tests/c_test_util.h"

enum { BATCH = 3, SEQ = 16, VOCAB = 32, STEPS = 12, MORE = 3 };

/* eps is large, so that gradients which are all rounding, other ones for every layout, move nothing. */
#define CONFIG(device, experts, more)                                                                                                     \
  "device: '" device "' threads: 1 steps: 100 seed: 5 "                                                                                   \
  "model { vocab_size: 32 num_layers: 2 d_model: 16 num_heads: 2 num_kv_heads: 1 num_global_experts: " experts " top_k: 2 d_hidden: 24 } " \
  "train { seq_len: 16 global_batch: 3 } optimizer { lr: 0.02 warmup_steps: 2 eps: 1e-4 } " more

typedef struct {
  moe_step_stats steps[STEPS + MORE];
  moe_step_stats resumed[MORE];   /* the same steps again, after loading what was saved after STEPS */
  double nll;
  int64_t labels;
  int32_t tokens[8];
  int64_t count[2 * 6];
  float logits[SEQ * VOCAB];      /* of the first sequence */
} history_t;

typedef struct {
  history_t* history;
  const char* folder;    /* to save to */
  const char* other;     /* a checkpoint of another layout to load at the end, or NULL */
  moe_step_stats from_other;
} run_t;

/* A sentence that repeats: easy to learn. */
static void text(int64_t sample, int32_t* ids, int32_t* labels) {
  int64_t s;
  for (s = 0; s < SEQ; ++s) {
    ids[s] = (int32_t)((sample * 5 + s * 3) % 29);
    labels[s] = s % 7 == 6 ? -1 : (int32_t)((sample * 5 + (s + 1) * 3) % 29);
  }
}

/* This rank's sequences of a global batch. */
static moe_batch share(const moe_model* m, int64_t step, int32_t* ids, int32_t* labels) {
  int64_t rank = -1, size = -1, begin, end, i;
  moe_batch b;
  OK(moe_model_data_rank(m, &rank, &size));
  begin = BATCH * rank / size;
  end = BATCH * (rank + 1) / size;
  for (i = begin; i < end; ++i) text(step * BATCH + i, ids + (i - begin) * SEQ, labels + (i - begin) * SEQ);
  MOE_INIT(b);
  b.ids = ids;
  b.labels = labels;
  b.batch = end - begin;
  b.seq = SEQ;
  b.first_sample = step * BATCH + begin;
  return b;
}

static moe_step_stats train(moe_model* m, int64_t step, int halves) {
  int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
  moe_batch b = share(m, step, ids, labels);
  moe_step_stats s;
  MOE_INIT(s);
  if (halves) {
    OK(moe_model_forward_backward(m, &b, &s));
    CHECK(s.grad_norm == 0 && s.lr == 0 && s.loss > 0);
    OK(moe_model_optimizer_step(m, &s));
  } else {
    OK(moe_model_train_step(m, &b, &s));
  }
  CHECK(s.step == step && moe_model_step(m) == step + 1 && s.grad_norm > 0 && s.lr > 0);
  return s;
}

static void body(rank_t* r) {
  run_t* run = (run_t*)r->shared;
  history_t ignored, *h = r->rank == 0 ? run->history : &ignored;
  moe_model* m = NULL;
  char *user = NULL, *json = NULL;
  char missing[600];
  int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
  const int32_t prompt[] = {0, 3, 6};
  int64_t i, params, experts;
  moe_batch b;
  char* text_of_experts = NULL;
  OK(moe_model_create(r->engine, &m));
  CHECK(moe_model_num_moe_layers(m) == 2);
  for (i = 0; i < STEPS; ++i) h->steps[i] = train(m, i, (int)(i % 2));
  OK(moe_config_get(r->config, "model.num_global_experts", &text_of_experts));
  experts = atoi(text_of_experts);
  moe_string_destroy(text_of_experts);
  OK(moe_model_expert_count(m, h->count, 2 * experts));
  OK(moe_model_save(m, run->folder, "{\"place\": 12}"));
  FAILS(moe_model_save(m, run->folder, NULL), MOE_ALREADY_EXISTS, run->folder);
  for (i = STEPS; i < STEPS + MORE; ++i) h->steps[i] = train(m, i, 0);
  b = share(m, 1000, ids, labels);
  OK(moe_model_evaluate(m, &b, &h->nll, &h->labels));
  OK(moe_model_generate(m, prompt, 3, 8, 0, 1, h->tokens));
  b.labels = NULL;
  {
    float logits[BATCH * SEQ * VOCAB];
    OK(moe_model_logits(m, &b, logits));
    if (b.batch > 0 && b.first_sample == 1000 * BATCH) memcpy(run->history->logits, logits, sizeof(h->logits)); /* one rank has it */
  }
  /* A checkpoint that is not there leaves all as it is. */
  snprintf(missing, sizeof(missing), "%s-missing", run->folder);
  FAILS(moe_model_load(m, missing, 0, NULL), MOE_NOT_FOUND, missing);
  CHECK(moe_model_step(m) == STEPS + MORE);
  OK(moe_model_load(m, run->folder, 0, &user));
  CHECK(strcmp(user, "{\"place\":12}") == 0 && moe_model_step(m) == STEPS);
  moe_string_destroy(user);
  for (i = 0; i < MORE; ++i) h->resumed[i] = train(m, STEPS + i, 0);
  if (run->other != NULL) {
    moe_step_stats s;
    OK(moe_model_load(m, run->other, 0, NULL));
    s = train(m, STEPS, 0);
    if (r->rank == 0) run->from_other = s;
    OK(moe_model_load(m, run->other, 1, NULL)); /* weights alone: the counter stays */
    CHECK(moe_model_step(m) == STEPS + 1);
  }
  OK(moe_model_describe(m, &json));
  CHECK(strstr(json, "\"parameters\"") && strstr(json, "\"memory_bytes\"") && strstr(json, "\"experts\"") && strstr(json, "\"mesh\"") && strstr(json, "\"dp_size\""));
  moe_string_destroy(json);
  params = moe_model_num_parameters(m);
  for (i = 0; i < params; ++i) {
    moe_parameter p;
    MOE_INIT(p);
    OK(moe_model_parameter(m, i, &p));
    CHECK(p.is_expert == (strstr(p.name, ".experts.") != NULL) && p.value != NULL && p.grad != NULL && p.dtype == MOE_FLOAT32);
  }
  moe_model_destroy(m);
}

static void agree(double a, double b, double tolerance, const char* what, int i) {
  if (fabs(a - b) <= tolerance * (1 + fabs(a))) return;
  fprintf(stderr, "%s of step %d: %.9g and %.9g\n", what, i, a, b);
  exit(1);
}

static void compare(const history_t* a, const history_t* b) {
  int i;
  for (i = 0; i < STEPS + MORE; ++i) {
    agree(a->steps[i].loss, b->steps[i].loss, 1e-5, "loss", i);
    agree(a->steps[i].total_loss, b->steps[i].total_loss, 1e-5, "total_loss", i);
    agree(a->steps[i].aux_loss, b->steps[i].aux_loss, 1e-5, "aux_loss", i);
    agree(a->steps[i].grad_norm, b->steps[i].grad_norm, 1e-4, "grad_norm", i);
    CHECK(a->steps[i].tokens == b->steps[i].tokens && a->steps[i].lr == b->steps[i].lr);
  }
  agree(a->nll, b->nll, 1e-5, "nll", 0);
  CHECK(a->labels == b->labels && memcmp(a->tokens, b->tokens, sizeof(a->tokens)) == 0 && memcmp(a->count, b->count, sizeof(a->count)) == 0);
  for (i = 0; i < SEQ * VOCAB; ++i) agree(a->logits[i], b->logits[i], 1e-3, "logits", i);
}

static void check_history(const history_t* h) {
  int64_t i, routes = 0;
  for (i = 0; i < STEPS; ++i) CHECK(h->steps[i].tokens == BATCH * (SEQ - SEQ / 7) && h->steps[i].dropped_routes == 0);
  CHECK(h->steps[0].loss > 3.0 && h->steps[0].loss < 4.0);                 /* ln 32 = 3.47 */
  CHECK(h->steps[STEPS - 1].loss < 0.7 * h->steps[0].loss);
  CHECK(h->nll / (double)h->labels < 0.7 * h->steps[0].loss);
  for (i = 0; i < 12; ++i) routes += h->count[i];
  CHECK(routes == 2 * BATCH * SEQ * 2);
  for (i = 0; i < 8; ++i) CHECK(h->tokens[i] >= 0 && h->tokens[i] < VOCAB);
  for (i = 0; i < MORE; ++i) CHECK(memcmp(&h->steps[STEPS + i], &h->resumed[i], sizeof(moe_step_stats)) == 0); /* bit-equal */
}

static void remove_folder(const char* path) {
  char command[700];
  snprintf(command, sizeof(command), "rm -rf '%s'", path);
  CHECK(system(command) == 0);
}

/* One rank against `ranks` ranks. */
static void test_device(const char* config, int64_t ranks, const char* name) {
  static history_t one, several;
  run_t run;
  char folder[2][512];
  const char* tmp = getenv("TEST_TMPDIR");
  int i;
  for (i = 0; i < 2; ++i) {
    snprintf(folder[i], sizeof(folder[i]), "%s/train_test_%s_%d", tmp ? tmp : "/tmp", name, i);
    remove_folder(folder[i]);
  }
  memset(&run, 0, sizeof(run));
  memset(&one, 0, sizeof(one));
  memset(&several, 0, sizeof(several));
  run.history = &one;
  run.folder = folder[0];
  run_ranks(1, config, body, &run);
  check_history(&one);
  run.history = &several;
  run.folder = folder[1];
  run.other = folder[0];
  run_ranks(ranks, config, body, &run);
  check_history(&several);
  compare(&one, &several);
  agree(run.from_other.loss, one.steps[STEPS].loss, 1e-5, "loss from the other layout's checkpoint", STEPS);
  for (i = 0; i < 2; ++i) remove_folder(folder[i]);
}

/* A batch that is bad on one rank, numbers that fail on one rank: all hear of it, nobody waits. */
static void errors_body(rank_t* r) {
  moe_model* m = NULL;
  int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
  moe_batch b;
  moe_step_stats s;
  moe_parameter p;
  moe_status* status;
  int64_t i;
  OK(moe_model_create(r->engine, &m));
  MOE_INIT(s);
  b = share(m, 0, ids, labels);
  if (r->rank == 1) ids[3] = 99;
  BAD(moe_model_train_step(m, &b, &s), r->rank == 1 ? "batch.ids[0, 3] is 99" : "rank 1: batch.ids[0, 3] is 99");
  ids[3] = 1;
  BAD(moe_model_train_step(m, r->rank == 1 ? NULL : &b, &s), r->rank == 1 ? "argument batch is NULL" : "rank 1: argument batch is NULL");
  BAD(moe_model_train_step(m, &b, r->rank == 1 ? NULL : &s), r->rank == 1 ? "argument stats is NULL" : "rank 1: argument stats is NULL");
  b.seq = r->rank == 1 ? SEQ / 2 : SEQ;
  BAD(moe_model_train_step(m, &b, &s), "batch.seq");
  BAD(moe_model_generate(m, ids, 2, 1 + (r->rank == 1), 0, 1, labels), "different arguments of moe_model_generate");
  b = share(m, 0, ids, labels);
  CHECK(s.loss == 0 && moe_model_step(m) == 0);
  OK(moe_model_train_step(m, &b, &s)); /* nothing is lost */
  /* Rank 1 spoils its copy of a router. */
  MOE_INIT(p);
  for (i = 0; p.name == NULL || strcmp(p.name, "layers.0.moe.gate.weight") != 0; ++i) OK(moe_model_parameter(m, i, &p));
  if (r->rank == 1) ((float*)p.value)[0] = (float)NAN;
  status = moe_model_train_step(m, &b, &s);
  CHECK(status != NULL);
  if (r->rank != 1) CHECK(moe_status_origin_rank(status) == 1 && strstr(moe_status_message(status), "rank 1: layers.0.moe") != NULL);
  moe_status_destroy(status);
  status = moe_model_train_step(m, &b, &s); /* nobody waits: the same error again, on all */
  CHECK(status != NULL && moe_status_origin_rank(status) == 1);
  moe_status_destroy(status);
  moe_model_destroy(m);
}

static void* failing_rank(void* p) {
  rank_t* r = (rank_t*)p;
  moe_engine_options o;
  MOE_INIT(o);
  o.rank = r->rank;
  o.world_size = r->size;
  o.inproc = r->inproc;
  OK(moe_engine_create(r->config, &o, &r->engine));
  errors_body(r);
  moe_engine_destroy(r->engine);
  return NULL;
}

static void test_errors(const char* config, int size) {
  rank_t ranks[4];
  moe_inproc* inproc = NULL;
  moe_config* c = parse_config(config);
  int i;
  OK(moe_inproc_create(size, &inproc));
  memset(ranks, 0, sizeof(ranks));
  for (i = 0; i < size; ++i) {
    ranks[i].rank = i;
    ranks[i].size = size;
    ranks[i].inproc = inproc;
    ranks[i].config = c;
    CHECK(pthread_create(&ranks[i].thread, NULL, failing_rank, &ranks[i]) == 0);
  }
  for (i = 0; i < size; ++i) CHECK(pthread_join(ranks[i].thread, NULL) == 0);
  moe_inproc_destroy(inproc);
  moe_config_destroy(c);
}

int main(void) {
  test_errors(CONFIG("reference", "4", "transport { kind: 'inproc' }"), 2);
  test_errors(CONFIG("reference", "6", "transport { kind: 'inproc' }"), 4); /* two groups of experts: the other one is not where it fails */
  test_device(CONFIG("cpu", "4", ""), 2, "cpu");             /* shares of 1 and 2 sequences */
  test_device(CONFIG("cpu", "6", ""), 4, "ragged");          /* a rank without a sequence; two copies of every expert */
  test_device(CONFIG("reference", "4", "gate { capacity_factor: 8 }"), 2, "reference");
  return 0;
}
