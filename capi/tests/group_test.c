/* Collectives of three ranks that are threads, blocking and in flight; groups of some ranks; what becomes of mistakes. */
#include "capi/tests/c_test_util.h"

static const char kConfig[] = "threads: 1 transport { timeout_s: 20 }";

static void collectives(moe_group* g, int64_t me, int64_t n, int in_flight) {
  moe_work* w = NULL;
  moe_work** out = in_flight ? &w : NULL;
#define RUN(call)             \
  do {                        \
    OK(call);                 \
    if (in_flight) {          \
      OK(moe_work_wait(w));   \
      moe_work_destroy(w);    \
      w = NULL;               \
    }                         \
  } while (0)
  double sum[2];
  float many[3], scattered = -1;
  int64_t i, largest, gathered[3], sent[3][2], arrived[3], send_bytes[3], send_offsets[3], recv_bytes[3], recv_offsets[3];
  int32_t smallest;
  uint8_t told[5];

  sum[0] = 0.1 * (double)(me + 1);
  sum[1] = (double)me;
  RUN(moe_group_all_reduce(g, sum, 2, MOE_FLOAT64, MOE_SUM, out));
  CHECK(sum[0] == (0.1 + 0.2) + 0.1 * 3 && sum[1] == 3); /* in rank order, to the bit */
  largest = 10 * me;
  RUN(moe_group_all_reduce(g, &largest, 1, MOE_INT64, MOE_MAX, out));
  CHECK(largest == 20);
  smallest = (int32_t)me - 5;
  RUN(moe_group_all_reduce(g, &smallest, 1, MOE_INT32, MOE_MIN, out));
  CHECK(smallest == -5);
  RUN(moe_group_all_reduce(g, NULL, 0, MOE_FLOAT32, MOE_SUM, out));

  RUN(moe_group_all_gather(g, &me, sizeof(me), gathered, out));
  for (i = 0; i < n; ++i) CHECK(gathered[i] == i);

  for (i = 0; i < 3; ++i) many[i] = (float)(me * 3 + i);
  RUN(moe_group_reduce_scatter(g, many, &scattered, 1, MOE_FLOAT32, MOE_MAX, out));
  CHECK(scattered == (float)(6 + me));

  /* i sends j + 1 numbers of value 10 i + j to j, except that nobody sends to 0 but 0 itself. */
  for (i = 0; i < 3; ++i) {
    sent[i][0] = sent[i][1] = 10 * me + i;
    send_bytes[i] = i == 0 && me != 0 ? 0 : 8 * (i == 0 ? 1 : i);
    send_offsets[i] = 16 * i;
    recv_bytes[i] = me == 0 && i != 0 ? 0 : 8 * (me == 0 ? 1 : me);
    recv_offsets[i] = 0;
    arrived[i] = -1;
  }
  if (me == 2) {
    int64_t two[6];
    for (i = 0; i < 3; ++i) recv_offsets[i] = 16 * i;
    RUN(moe_group_all_to_all_v(g, sent, send_bytes, send_offsets, two, recv_bytes, recv_offsets, out));
    for (i = 0; i < 6; ++i) CHECK(two[i] == 10 * (i / 2) + 2);
  } else {
    for (i = 0; i < 3; ++i) recv_offsets[i] = 8 * i;
    RUN(moe_group_all_to_all_v(g, sent, send_bytes, send_offsets, arrived, recv_bytes, recv_offsets, out));
    for (i = 0; i < 3; ++i) CHECK(arrived[i] == (me == 0 && i != 0 ? -1 : 10 * i + me));
  }

  memset(told, me == 1 ? 42 : 0, sizeof(told));
  RUN(moe_group_broadcast(g, told, sizeof(told), 1, out));
  CHECK(told[0] == 42 && told[4] == 42);

  if (me == 0) RUN(moe_group_send(g, "abc", 4, 2, 7, out));
  if (me == 2) RUN(moe_group_recv(g, told, 4, 0, 7, out));
  if (me == 2) CHECK(strcmp((const char*)told, "abc") == 0);
  RUN(moe_group_barrier(g, out));
#undef RUN
}

static void all_in_flight_at_once(moe_group* g, int64_t me) {
  double values[16];
  moe_work* works[16];
  int i;
  for (i = 0; i < 16; ++i) {
    values[i] = (double)(me + i);
    OK(moe_group_all_reduce(g, &values[i], 1, MOE_FLOAT64, MOE_SUM, &works[i]));
  }
  for (i = 15; i >= 0; --i) { /* ended in any order; destroy waits */
    int32_t done = 0;
    if (i % 3 == 0) OK(moe_work_wait(works[i]));
    if (i % 3 == 1) {
      while (!done) OK(moe_work_test(works[i], &done));
    }
    moe_work_destroy(works[i]);
    CHECK(values[i] == 3.0 + 3 * i);
  }
}

static void good_body(rank_t* r) {
  int64_t pair[2], x = r->rank, i;
  moe_group* g = NULL;
  char* json = NULL;
  CHECK(moe_engine_rank(r->engine) == r->rank && moe_engine_world_size(r->engine) == 3);
  CHECK(moe_group_rank(r->world) == r->rank && moe_group_size(r->world) == 3);
  collectives(r->world, r->rank, 3, 0);
  collectives(r->world, r->rank, 3, 1);
  all_in_flight_at_once(r->world, r->rank);
  /* Groups of some ranks: (0,2) and, later under the same number, (1,2). */
  for (i = 0; i < 2; ++i) {
    pair[0] = i;
    pair[1] = 2;
    if (r->rank == 1 - i) continue;
    OK(moe_group_create(r->engine, 5, pair, 2, &g));
    CHECK(moe_group_size(g) == 2 && moe_group_rank(g) == (r->rank == 2));
    x = r->rank;
    OK(moe_group_all_reduce(g, &x, 1, MOE_INT64, MOE_SUM, NULL));
    CHECK(x == 2 + i);
    moe_group_destroy(g);
  }
  OK(moe_engine_describe(r->engine, &json));
  CHECK(strstr(json, "\"transport\":\"inproc\"") && strstr(json, "\"world_size\":3") && strstr(json, "\"ep\":{\"size\":1"));
  moe_string_destroy(json);
}

/* ---- mistakes: every member hears of them, and the group is ended */

static void counts_disagree_body(rank_t* r) {
  const int64_t all[3] = {0, 1, 2};
  int64_t send[3] = {1, 1, 1}, recv[3] = {1, 1, 1}, offsets[3] = {0, 1, 2};
  char a[8] = {0}, b[8] = {0};
  moe_group* g = NULL;
  moe_status* s;
  OK(moe_group_create(r->engine, 9, all, 3, &g));
  OK(moe_group_barrier(r->world, NULL)); /* every rank has made it */
  if (r->rank == 2) recv[1] = 4; /* rank 1 sends 1 */
  s = moe_group_all_to_all_v(g, a, send, offsets, b, recv, offsets, NULL);
  CHECK(moe_status_code(s) == MOE_INVALID_ARGUMENT);
  CHECK(strstr(moe_status_message(s), "1") && strstr(moe_status_message(s), "4"));
  CHECK(moe_status_group(s) == 9 && moe_status_origin_rank(s) >= 0 && moe_status_num_failed_ranks(s) == 2);
  CHECK(moe_status_failed_rank(s, 0) == 1 && moe_status_failed_rank(s, 1) == 2 && moe_status_sequence(s) == 0);
  moe_status_destroy(s);
  BAD(moe_group_barrier(g, NULL), "4"); /* the same error ever after */
  moe_group_destroy(g);
  OK(moe_group_barrier(r->world, NULL)); /* other groups go on */
}

static void one_argument_is_bad_body(rank_t* r) {
  const int64_t all[3] = {0, 1, 2};
  int64_t x = 1;
  moe_group* g = NULL;
  moe_status* s;
  OK(moe_group_create(r->engine, 9, all, 3, &g));
  OK(moe_group_barrier(r->world, NULL)); /* every rank has made it */
  s = moe_group_all_reduce(g, &x, 1, r->rank == 1 ? 99 : MOE_INT64, MOE_SUM, NULL);
  CHECK(moe_status_code(s) == MOE_INVALID_ARGUMENT && strstr(moe_status_message(s), "rank 1: dtype is 99") != NULL);
  CHECK(moe_status_origin_rank(s) == 1 && moe_status_group(s) == 9 && moe_status_failed_rank(s, 0) == 1);
  moe_status_destroy(s);
  moe_group_destroy(g);
  OK(moe_group_barrier(r->world, NULL));
}

/* ---- engines that cannot come together */

typedef struct {
  moe_inproc* inproc;
  moe_config* config;
  int64_t rank, size;
  int32_t code;
  const char* text;
  int64_t failed_rank;
  pthread_t thread;
} failing_t;

static void* fail_to_open(void* p) {
  failing_t* f = (failing_t*)p;
  moe_engine_options o;
  moe_engine* e = NULL;
  moe_status* s;
  MOE_INIT(o);
  o.rank = f->rank;
  o.world_size = f->size;
  o.inproc = f->inproc;
  s = moe_engine_create(f->config, &o, &e);
  CHECK(e == NULL);
  if (f->failed_rank >= 0) CHECK(moe_status_num_failed_ranks(s) == 1 && moe_status_failed_rank(s, 0) == f->failed_rank);
  FAILS(s, f->code, f->text);
  return NULL;
}

static void test_engines_that_fail(void) {
  failing_t f[2];
  int i;
  memset(f, 0, sizeof(f));
  for (i = 0; i < 2; ++i) {
    f[i].rank = i;
    f[i].size = 2;
    f[i].failed_rank = -1;
  }
  /* A rank that does not come. */
  OK(moe_inproc_create(2, &f[0].inproc));
  f[0].config = parse_config("threads: 1 transport { kind: 'inproc' timeout_s: 0.3 }");
  f[0].code = MOE_DEADLINE_EXCEEDED;
  f[0].text = "missing ranks: 1";
  f[0].failed_rank = 1;
  fail_to_open(&f[0]);
  f[0].failed_rank = -1;
  moe_inproc_destroy(f[0].inproc);
  moe_config_destroy(f[0].config);
  /* A configuration that is wrong on one rank, that is wrong on both, that differs. */
  for (i = 0; i < 3; ++i) {
    const char* of_0[] = {"threads: 1 transport { kind: 'inproc' }", "model { top_k: 99 } transport { kind: 'inproc' }", "threads: 1 seed: 1 transport { kind: 'inproc' }"};
    const char* of_1[] = {"model { top_k: 99 } transport { kind: 'inproc' }", "model { top_k: 99 } transport { kind: 'inproc' }", "threads: 1 seed: 2 transport { kind: 'inproc' }"};
    const char* text_0[] = {"rank 1: model.top_k is 99", "model.top_k is 99", "rank 1: the configuration differs from rank 0's|seed: 2|seed: 1"};
    const char* text_1[] = {"model.top_k is 99", "model.top_k is 99", "'seed: 2' here, 'seed: 1' there"};
    OK(moe_inproc_create(2, &f[0].inproc));
    f[1].inproc = f[0].inproc;
    f[0].config = parse_config(of_0[i]);
    f[1].config = parse_config(of_1[i]);
    f[0].code = f[1].code = MOE_INVALID_ARGUMENT;
    f[0].text = text_0[i];
    f[1].text = text_1[i];
    CHECK(pthread_create(&f[0].thread, NULL, fail_to_open, &f[0]) == 0);
    CHECK(pthread_create(&f[1].thread, NULL, fail_to_open, &f[1]) == 0);
    CHECK(pthread_join(f[0].thread, NULL) == 0 && pthread_join(f[1].thread, NULL) == 0);
    moe_inproc_destroy(f[0].inproc);
    moe_config_destroy(f[0].config);
    moe_config_destroy(f[1].config);
  }
}

int main(void) {
  run_ranks(3, kConfig, good_body, NULL);
  run_ranks(3, kConfig, counts_disagree_body, NULL);
  run_ranks(3, kConfig, one_argument_is_bad_body, NULL);
  test_engines_that_fail();
  return 0;
}
