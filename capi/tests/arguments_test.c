/* Bad arguments of engine, group, layer and model on one rank: each is refused by name, and the handle works afterwards. */
#include <math.h>

#include "capi/tests/c_test_util.h"

static const char kConfig[] =
    "device: \"reference\" threads: 1\n"
    "model { vocab_size: 11 num_layers: 2 d_model: 8 num_heads: 2 num_kv_heads: 1 num_global_experts: 4 top_k: 2 d_hidden: 6 num_dense_layers: 1 }\n"
    "train { seq_len: 4 global_batch: 2 }";

static void test_engine_options(void) {
  moe_config* c = parse_config(kConfig);
  moe_engine* e = NULL;
  moe_inproc* world = NULL;
  struct { moe_engine_options o; int64_t unknown[2]; } longer;
  moe_engine_options o;
  MOE_INIT(o);
  BAD(moe_engine_create(NULL, &o, &e), "argument config is NULL");
  BAD(moe_engine_create(c, NULL, &e), "argument options is NULL");
  BAD(moe_engine_create(c, &o, NULL), "argument engine is NULL");
  o.struct_size = 0;
  BAD(moe_engine_create(c, &o, &e), "options.struct_size is 0|MOE_INIT");
  o.struct_size = 9;
  BAD(moe_engine_create(c, &o, &e), "options.struct_size is 9");
  o.struct_size = (size_t)1 << 40;
  BAD(moe_engine_create(c, &o, &e), "options.struct_size");
  MOE_INIT(o);
  o.extension = c;
  BAD(moe_engine_create(c, &o, &e), "options.extension is not NULL");
  MOE_INIT(o);
  o.rank = 1;
  BAD(moe_engine_create(c, &o, &e), "options.rank is 1|options.world_size is 1");
  o.rank = -1;
  BAD(moe_engine_create(c, &o, &e), "options.rank is -1");
  MOE_INIT(o);
  o.world_size = -2;
  BAD(moe_engine_create(c, &o, &e), "options.world_size is -2");
  o.world_size = 2;
  BAD(moe_engine_create(c, &o, &e), "options.port and transport.port are 0");
  o.port = 65536;
  BAD(moe_engine_create(c, &o, &e), "options.port is 65536");
  o.port = 0;
  o.local_world_size = 3;
  BAD(moe_engine_create(c, &o, &e), "options.local_world_size is 3");
  o.local_world_size = 0;
  OK(moe_inproc_create(3, &world));
  o.inproc = world;
  BAD(moe_engine_create(c, &o, &e), "options.inproc is given, but transport.kind is ucx");
  OK(moe_config_set(c, "transport", "inproc"));
  BAD(moe_engine_create(c, &o, &e), "options.world_size is 2|3 ranks");
  o.inproc = NULL;
  BAD(moe_engine_create(c, &o, &e), "options.inproc is NULL|moe_inproc_create");
  BAD(moe_inproc_create(0, &world), "world_size is 0");
  BAD(moe_inproc_create(1, NULL), "argument world is NULL");
  moe_inproc_destroy(world);
  moe_inproc_destroy(NULL);
  CHECK(e == NULL);

  /* Structs of other versions. */
  memset(&longer, 0, sizeof(longer));
  longer.o.struct_size = sizeof(longer);
  longer.unknown[1] = 5;
  BAD(moe_engine_create(c, &longer.o, &e), "options has|newer library");
  longer.unknown[1] = 0;
  OK(moe_engine_create(c, &longer.o, &e));
  moe_engine_destroy(e);
  e = NULL;
  MOE_INIT(o);
  o.struct_size = offsetof(moe_engine_options, inproc);
  OK(moe_engine_create(c, &o, &e));
  moe_engine_destroy(e);
  e = NULL;

  OK(moe_config_set(c, "model.top_k", "5"));
  MOE_INIT(o);
  BAD(moe_engine_create(c, &o, &e), "model.top_k is 5");
  CHECK(e == NULL);
  moe_config_destroy(c);
}

static void test_engine(moe_engine* e) {
  char* json = NULL;
  double gflops = -1;
  BAD(moe_engine_describe(NULL, &json), "argument engine is NULL");
  BAD(moe_engine_describe(e, NULL), "argument json is NULL");
  BAD(moe_engine_measure_peak(NULL, &gflops), "argument engine is NULL");
  BAD(moe_engine_measure_peak(e, NULL), "argument gflops is NULL");
  BAD(moe_engine_abort(NULL, "x"), "argument engine is NULL");
  BAD(moe_engine_abort(e, NULL), "argument message is NULL");
  BAD(moe_engine_shutdown(NULL), "argument engine is NULL");
  CHECK(moe_engine_rank(NULL) == -1 && moe_engine_world_size(NULL) == -1);
  CHECK(moe_engine_rank(e) == 0 && moe_engine_world_size(e) == 1);
  moe_engine_destroy(NULL);
  OK(moe_engine_measure_peak(e, &gflops));
  CHECK(gflops > 0);
  OK(moe_engine_describe(e, &json));
  CHECK(strstr(json, "\"device\"") && strstr(json, "\"threads\"") && strstr(json, "\"transport\"") && strstr(json, "\"peers\"") && strstr(json, "\"mesh\""));
  moe_string_destroy(json);
}

static void test_group(moe_engine* e) {
  const int64_t ranks[] = {0, 1}, one[] = {4}, zero[] = {0}, negative[] = {-1};
  char buffer[4] = {1, 2, 3, 4}, other[4] = {0, 0, 0, 0};
  moe_group *g = NULL, *made = NULL;
  moe_work* w = NULL;
  int32_t done = -1;
  BAD(moe_group_world(NULL, &g), "argument engine is NULL");
  BAD(moe_group_world(e, NULL), "argument group is NULL");
  BAD(moe_group_create(NULL, 0, ranks, 1, &made), "argument engine is NULL");
  BAD(moe_group_create(e, 0, NULL, 1, &made), "argument ranks is NULL");
  BAD(moe_group_create(e, 0, ranks, 1, NULL), "argument group is NULL");
  BAD(moe_group_create(e, -1, ranks, 1, &made), "id is -1");
  BAD(moe_group_create(e, (int64_t)1 << 32, ranks, 1, &made), "id is 4294967296");
  BAD(moe_group_create(e, 0, ranks, 0, &made), "n is 0");
  BAD(moe_group_create(e, 0, ranks, 2, &made), "n is 2");
  BAD(moe_group_create(e, 0, one, 1, &made), "ranks[0] is 4");
  CHECK(made == NULL);
  CHECK(moe_group_rank(NULL) == -1 && moe_group_size(NULL) == -1);
  moe_group_destroy(NULL);

  BAD(moe_group_all_reduce(NULL, buffer, 1, MOE_UINT8, MOE_SUM, NULL), "argument group is NULL");
  BAD(moe_group_all_gather(NULL, buffer, 1, other, NULL), "argument group is NULL");
  BAD(moe_group_reduce_scatter(NULL, buffer, other, 1, MOE_UINT8, MOE_SUM, NULL), "argument group is NULL");
  BAD(moe_group_all_to_all_v(NULL, buffer, one, zero, other, one, zero, NULL), "argument group is NULL");
  BAD(moe_group_broadcast(NULL, buffer, 1, 0, NULL), "argument group is NULL");
  BAD(moe_group_send(NULL, buffer, 1, 0, 0, NULL), "argument group is NULL");
  BAD(moe_group_recv(NULL, buffer, 1, 0, 0, NULL), "argument group is NULL");
  BAD(moe_group_barrier(NULL, NULL), "argument group is NULL");

  /* A group that a wrong argument has ended: a new one for each. */
#define GROUP_BAD(call, text)          \
  do {                                 \
    OK(moe_group_create(e, 7, zero, 1, &g)); \
    BAD(call, text);                   \
    moe_group_destroy(g);              \
  } while (0)
  GROUP_BAD(moe_group_all_reduce(g, NULL, 1, MOE_UINT8, MOE_SUM, NULL), "inout is null");
  GROUP_BAD(moe_group_all_reduce(g, buffer, -1, MOE_UINT8, MOE_SUM, NULL), "count is -1");
  GROUP_BAD(moe_group_all_reduce(g, buffer, INT64_MAX, MOE_INT64, MOE_SUM, NULL), "too large");
  GROUP_BAD(moe_group_all_reduce(g, buffer, 1, 0, MOE_SUM, NULL), "dtype is 0");
  GROUP_BAD(moe_group_all_reduce(g, buffer, 1, 6, MOE_SUM, &w), "dtype is 6");
  GROUP_BAD(moe_group_all_reduce(g, buffer, 1, MOE_UINT8, 3, NULL), "op is 3");
  GROUP_BAD(moe_group_reduce_scatter(g, buffer, NULL, 1, MOE_UINT8, MOE_SUM, NULL), "recv is null");
  GROUP_BAD(moe_group_reduce_scatter(g, buffer, other, 1, 9, MOE_SUM, NULL), "dtype is 9");
  GROUP_BAD(moe_group_all_gather(g, NULL, 1, other, NULL), "send is null");
  GROUP_BAD(moe_group_all_gather(g, buffer, -5, other, NULL), "bytes is -5");
  GROUP_BAD(moe_group_all_to_all_v(g, buffer, NULL, zero, other, one, zero, NULL), "argument send_bytes is NULL");
  GROUP_BAD(moe_group_all_to_all_v(g, buffer, one, NULL, other, one, zero, NULL), "argument send_offsets is NULL");
  GROUP_BAD(moe_group_all_to_all_v(g, buffer, one, zero, other, NULL, zero, NULL), "argument recv_bytes is NULL");
  GROUP_BAD(moe_group_all_to_all_v(g, buffer, one, zero, other, one, NULL, NULL), "argument recv_offsets is NULL");
  GROUP_BAD(moe_group_all_to_all_v(g, NULL, one, zero, other, one, zero, NULL), "send is null");
  GROUP_BAD(moe_group_all_to_all_v(g, buffer, negative, zero, other, negative, zero, NULL), "must not be negative");
  GROUP_BAD(moe_group_broadcast(g, buffer, 1, 1, NULL), "root is 1");
  GROUP_BAD(moe_group_broadcast(g, buffer, 1, (int64_t)1 << 32, NULL), "root is 4294967296");
  GROUP_BAD(moe_group_send(g, buffer, 1, 2, 0, NULL), "to is 2");
  GROUP_BAD(moe_group_recv(g, buffer, 1, -1, 0, NULL), "from is -1");
  CHECK(w == NULL);

  OK(moe_group_world(e, &g));
  CHECK(moe_group_rank(g) == 0 && moe_group_size(g) == 1);
  OK(moe_group_all_to_all_v(g, buffer, one, zero, other, one, zero, &w));
  BAD(moe_work_test(NULL, &done), "argument work is NULL");
  BAD(moe_work_test(w, NULL), "argument done is NULL");
  BAD(moe_work_wait(NULL), "argument work is NULL");
  OK(moe_work_wait(w));
  CHECK(memcmp(buffer, other, 4) == 0);
  moe_work_destroy(w);
  moe_work_destroy(NULL);
  moe_group_destroy(g);
}

static void test_layer(moe_engine* e) {
  moe_engine* stranger = lone_engine(kConfig);
  moe_group *g = NULL, *strange = NULL;
  moe_layer* l = NULL;
  moe_layer_stats stats;
  moe_parameter p;
  float x[16], y[16];
  int64_t count[4] = {-1, -1, -1, -1};
  int32_t ids[4];
  memset(x, 0, sizeof(x));
  OK(moe_group_world(e, &g));
  OK(moe_group_world(stranger, &strange));
  BAD(moe_layer_create(NULL, g, &l), "argument engine is NULL");
  BAD(moe_layer_create(e, NULL, &l), "argument group is NULL");
  BAD(moe_layer_create(e, g, NULL), "argument layer is NULL");
  BAD(moe_layer_create(e, strange, &l), "another engine");
  CHECK(l == NULL);
  OK(moe_layer_create(e, g, &l));
  moe_group_destroy(strange);
  moe_engine_destroy(stranger);

  MOE_INIT(stats);
  stats.tokens = 77;
  FAILS(moe_layer_backward(l, x, 1, y), MOE_FAILED_PRECONDITION, "needs a moe_layer_forward");
  FAILS(moe_layer_expert_count(l, count, 4), MOE_FAILED_PRECONDITION, "no moe_layer_forward");
  FAILS(moe_layer_routing(l, ids, NULL), MOE_FAILED_PRECONDITION, "no moe_layer_forward");
  BAD(moe_layer_forward(NULL, x, 2, NULL, y, NULL), "argument layer is NULL");
  BAD(moe_layer_forward(l, NULL, 2, NULL, y, NULL), "argument x is NULL");
  BAD(moe_layer_forward(l, x, 2, NULL, NULL, NULL), "argument y is NULL");
  BAD(moe_layer_forward(l, x, -1, NULL, y, NULL), "num_tokens is -1");
  BAD(moe_layer_forward(l, x, INT64_MAX, NULL, y, NULL), "num_tokens is");
  stats.struct_size = 4;
  BAD(moe_layer_forward(l, x, 2, NULL, y, &stats), "stats.struct_size is 4");
  CHECK(stats.tokens == 77);
  MOE_INIT(stats);
  OK(moe_layer_forward(l, x, 2, NULL, y, &stats));
  CHECK(stats.tokens == 2);
  BAD(moe_layer_expert_count(l, NULL, 4), "argument expert_count is NULL");
  BAD(moe_layer_expert_count(l, count, 3), "n is 3|which is 4");
  BAD(moe_layer_expert_count(NULL, count, 4), "argument layer is NULL");
  CHECK(count[0] == -1);
  OK(moe_layer_expert_count(l, count, 4));
  CHECK(count[0] + count[1] + count[2] + count[3] == 4);
  OK(moe_layer_routing(l, NULL, NULL));
  BAD(moe_layer_routing(NULL, ids, NULL), "argument layer is NULL");
  BAD(moe_layer_backward(NULL, x, 1, y), "argument layer is NULL");
  BAD(moe_layer_backward(l, NULL, 1, y), "argument dy is NULL");
  BAD(moe_layer_backward(l, x, 1, NULL), "argument dx is NULL");
  BAD(moe_layer_backward(l, x, HUGE_VAL, y), "aux_loss_scale is inf");
  OK(moe_layer_backward(l, x, 1, y));
  FAILS(moe_layer_backward(l, x, 1, y), MOE_FAILED_PRECONDITION, "once each");
  BAD(moe_layer_zero_grad(NULL), "argument layer is NULL");
  OK(moe_layer_zero_grad(l));
  /* No tokens, no buffers. */
  OK(moe_layer_forward(l, NULL, 0, NULL, NULL, NULL));
  OK(moe_layer_backward(l, NULL, 1, NULL));

  CHECK(moe_layer_num_parameters(NULL) == -1);
  CHECK(moe_layer_num_parameters(l) == 1 + 4 * 3);
  MOE_INIT(p);
  BAD(moe_layer_parameter(NULL, 0, &p), "argument layer is NULL");
  BAD(moe_layer_parameter(l, 0, NULL), "argument parameter is NULL");
  FAILS(moe_layer_parameter(l, 13, &p), MOE_OUT_OF_RANGE, "index is 13|13 parameters");
  FAILS(moe_layer_parameter(l, -1, &p), MOE_OUT_OF_RANGE, "index is -1");
  p.struct_size = offsetof(moe_parameter, shape); /* of an older header: what it does not have stays as it was */
  p.shape[0] = -5;
  OK(moe_layer_parameter(l, 0, &p));
  CHECK(p.struct_size == offsetof(moe_parameter, shape) && p.ndim == 2 && p.shape[0] == -5 && p.value == NULL);
  MOE_INIT(p);
  OK(moe_layer_parameter(l, 0, &p));
  CHECK(strcmp(p.name, "moe.gate.weight") == 0);
  CHECK(p.is_expert == 0 && p.dtype == MOE_FLOAT32 && p.ndim == 2 && p.shape[0] == 4 && p.shape[1] == 8 && p.global_shape[0] == 4 && p.begin[0] == 0 && p.value != NULL && p.grad != NULL);
  moe_layer_destroy(l);
  moe_layer_destroy(NULL);
  moe_group_destroy(g);
}

static void test_model(moe_engine* e) {
  moe_model* m = NULL;
  moe_batch b;
  moe_step_stats s;
  moe_parameter p;
  int32_t ids[8] = {0, 1, 2, 3, 4, 5, 6, 7}, labels[8] = {1, 2, 3, 4, -1, 6, 7, 8}, tokens[4] = {-7, -7, -7, -7};
  int64_t n = -7, dp = -7, count[4];
  double nll = -7;
  float logits[8 * 11];
  char* json = NULL;
  BAD(moe_model_create(NULL, &m), "argument engine is NULL");
  BAD(moe_model_create(e, NULL), "argument model is NULL");
  OK(moe_model_create(e, &m));
  MOE_INIT(b);
  b.ids = ids;
  b.labels = labels;
  b.batch = 2;
  b.seq = 4;
  MOE_INIT(s);
  s.loss = 77;

  BAD(moe_model_describe(NULL, &json), "argument model is NULL");
  BAD(moe_model_describe(m, NULL), "argument json is NULL");
  BAD(moe_model_data_rank(NULL, &dp, &n), "argument model is NULL");
  BAD(moe_model_data_rank(m, NULL, &n), "argument dp_rank is NULL");
  BAD(moe_model_data_rank(m, &dp, NULL), "argument dp_size is NULL");
  OK(moe_model_data_rank(m, &dp, &n));
  CHECK(dp == 0 && n == 1);

#define BATCH_BAD(field, value, text)                       \
  do {                                                      \
    const moe_batch keep = b;                               \
    b.field = value;                                        \
    BAD(moe_model_forward_backward(m, &b, &s), text);       \
    BAD(moe_model_train_step(m, &b, &s), text);             \
    BAD(moe_model_evaluate(m, &b, &nll, &n), text);         \
    b = keep;                                               \
  } while (0)
  n = -7;
  BATCH_BAD(struct_size, 0, "batch.struct_size is 0");
  BATCH_BAD(extension, &b, "batch.extension is not NULL");
  BATCH_BAD(ids, NULL, "argument batch.ids is NULL");
  BATCH_BAD(labels, NULL, "argument batch.labels is NULL");
  BATCH_BAD(batch, -1, "batch.batch is -1");
  BATCH_BAD(batch, INT64_MAX, "batch.batch 9223372036854775807");
  BATCH_BAD(seq, 0, "batch.seq is 0");
  BATCH_BAD(first_sample, -1, "batch.first_sample is -1");
  ids[5] = 11;
  BAD(moe_model_forward_backward(m, &b, &s), "batch.ids[1, 1] is 11, model.vocab_size is 11");
  BAD(moe_model_logits(m, &b, logits), "batch.ids[1, 1] is 11");
  ids[5] = -1;
  BAD(moe_model_evaluate(m, &b, &nll, &n), "batch.ids[1, 1] is -1");
  ids[5] = 5;
  labels[2] = 11;
  BAD(moe_model_train_step(m, &b, &s), "batch.labels[0, 2] is 11");
  labels[2] = 3;
  BAD(moe_model_forward_backward(NULL, &b, &s), "argument model is NULL");
  BAD(moe_model_forward_backward(m, NULL, &s), "argument batch is NULL");
  BAD(moe_model_forward_backward(m, &b, NULL), "argument stats is NULL");
  BAD(moe_model_optimizer_step(NULL, &s), "argument model is NULL");
  BAD(moe_model_optimizer_step(m, NULL), "argument stats is NULL");
  BAD(moe_model_train_step(NULL, &b, &s), "argument model is NULL");
  BAD(moe_model_train_step(m, &b, NULL), "argument stats is NULL");
  BAD(moe_model_evaluate(NULL, &b, &nll, &n), "argument model is NULL");
  BAD(moe_model_evaluate(m, &b, NULL, &n), "argument nll_sum is NULL");
  BAD(moe_model_evaluate(m, &b, &nll, NULL), "argument num_labels is NULL");
  BAD(moe_model_logits(NULL, &b, logits), "argument model is NULL");
  BAD(moe_model_logits(m, NULL, logits), "argument batch is NULL");
  BAD(moe_model_logits(m, &b, NULL), "argument logits is NULL");
  CHECK(s.loss == 77 && nll == -7 && n == -7 && moe_model_step(m) == 0);

  BAD(moe_model_generate(NULL, ids, 2, 3, 0, 1, tokens), "argument model is NULL");
  BAD(moe_model_generate(m, NULL, 2, 3, 0, 1, tokens), "argument prompt is NULL");
  BAD(moe_model_generate(m, ids, 0, 3, 0, 1, tokens), "n is 0");
  BAD(moe_model_generate(m, ids, 2, -3, 0, 1, tokens), "num_tokens is -3");
  BAD(moe_model_generate(m, ids, 2, 3, 0, 1, NULL), "argument tokens is NULL");
  BAD(moe_model_generate(m, ids, 2, 3, -1, 1, tokens), "temperature is -1");
  BAD(moe_model_generate(m, ids, 2, 3, HUGE_VAL, 1, tokens), "temperature is inf");
  ids[1] = 99;
  BAD(moe_model_generate(m, ids, 2, 3, 0, 1, tokens), "prompt[1] is 99");
  ids[1] = 1;
  CHECK(tokens[0] == -7);
  OK(moe_model_generate(m, ids, 2, 0, 0, 1, NULL));
  OK(moe_model_generate(m, ids, 2, 3, 0, 1, tokens));
  CHECK(tokens[2] >= 0 && tokens[2] < 11 && tokens[3] == -7);

  OK(moe_model_train_step(m, &b, &s));
  CHECK(s.tokens == 7 && s.step == 0 && moe_model_step(m) == 1 && moe_model_step(NULL) == -1);
  CHECK(moe_model_num_moe_layers(m) == 1 && moe_model_num_moe_layers(NULL) == -1);
  BAD(moe_model_expert_count(NULL, count, 4), "argument model is NULL");
  BAD(moe_model_expert_count(m, count, 8), "n is 8|which is 4");
  BAD(moe_model_expert_count(m, NULL, 4), "argument expert_count is NULL");
  OK(moe_model_expert_count(m, count, 4));
  CHECK(count[0] + count[1] + count[2] + count[3] == 16);
  BAD(moe_model_save(NULL, "x", NULL), "argument model is NULL");
  BAD(moe_model_save(m, NULL, NULL), "argument path is NULL");
  BAD(moe_model_load(NULL, "x", 0, NULL), "argument model is NULL");
  BAD(moe_model_load(m, NULL, 0, NULL), "argument path is NULL");
  FAILS(moe_model_load(m, "/nowhere", 0, &json), MOE_NOT_FOUND, "/nowhere");
  CHECK(json == NULL);
  MOE_INIT(p);
  CHECK(moe_model_num_parameters(NULL) == -1);
  BAD(moe_model_parameter(NULL, 0, &p), "argument model is NULL");
  BAD(moe_model_parameter(m, 0, NULL), "argument parameter is NULL");
  FAILS(moe_model_parameter(m, moe_model_num_parameters(m), &p), MOE_OUT_OF_RANGE, "index is");
  OK(moe_model_train_step(m, &b, &s)); /* all is well after so many refusals */
  CHECK(s.step == 1);
  s.struct_size = offsetof(moe_step_stats, lr);
  s.lr = -5;
  OK(moe_model_train_step(m, &b, &s));
  CHECK(s.step == 2 && s.grad_norm > 0 && s.lr == -5);
  moe_model_destroy(m);
  moe_model_destroy(NULL);
}

int main(void) {
  moe_engine* e;
  test_engine_options();
  e = lone_engine(kConfig);
  test_engine(e);
  test_group(e);
  test_layer(e);
  test_model(e);
  OK(moe_engine_shutdown(e));
  moe_engine_destroy(e);
  return 0;
}
