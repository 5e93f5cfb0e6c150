/* Threads, forks, log callbacks, handles destroyed in any order and from anywhere, ranks that leave. */
#include <sys/wait.h>
#include <unistd.h>

#include "capi/tests/c_test_util.h"

static const char kConfig[] =
    "threads: 1 transport { timeout_s: 20 }\n"
    "model { vocab_size: 11 num_layers: 1 d_model: 8 num_heads: 2 num_kv_heads: 1 num_global_experts: 4 top_k: 2 d_hidden: 6 }";

/* ---- a second thread inside */

typedef struct {
  rank_t* rank;
  moe_group* extra;
  pthread_barrier_t start;
  char got[4];
} inside_t;

static void* wait_inside(void* p) {
  inside_t* s = (inside_t*)p;
  moe_status* status;
  pthread_barrier_wait(&s->start);
  do { /* the other thread may be inside when this one comes */
    status = moe_group_recv(s->rank->world, s->got, 4, 1, 0, NULL);
    if (status != NULL) CHECK(moe_status_code(status) == MOE_FAILED_PRECONDITION);
    if (status == NULL) return NULL;
    moe_status_destroy(status);
  } while (1);
}

static void second_thread_body(rank_t* r) {
  inside_t s;
  pthread_t thread;
  char* json = NULL;
  moe_status* status = NULL;
  moe_layer* layer = NULL;
  moe_work* work = NULL;
  char late[4] = "";
  if (r->rank == 1) {
    char go = 0;
    OK(moe_group_recv(r->world, &go, 1, 2, 1, NULL)); /* rank 2 says when rank 0 has seen enough */
    OK(moe_group_send(r->world, "abc", 4, 0, 0, NULL));
    OK(moe_group_send(r->world, "xyz", 4, 0, 2, NULL));
    return;
  }
  if (r->rank == 2) {
    pthread_barrier_wait((pthread_barrier_t*)r->shared);
    OK(moe_group_send(r->world, "!", 1, 1, 1, NULL));
    return;
  }
  s.rank = r;
  OK(moe_group_world(r->engine, &s.extra));
  OK(moe_group_recv(r->world, late, 4, 1, 2, &work));
  {
    const int64_t zero = 0;
    moe_group* alone = NULL;
    OK(moe_group_create(r->engine, 3, &zero, 1, &alone));
    OK(moe_layer_create(r->engine, alone, &layer));
    moe_group_destroy(alone);
  }
  pthread_barrier_init(&s.start, NULL, 2);
  CHECK(pthread_create(&thread, NULL, wait_inside, &s) == 0);
  pthread_barrier_wait(&s.start);
  while ((status = moe_engine_describe(r->engine, &json)) == NULL) { /* until the other one is inside */
    moe_string_destroy(json);
    json = NULL;
  }
  FAILS(status, MOE_FAILED_PRECONDITION, "another thread is inside");
  FAILS(moe_layer_zero_grad(layer), MOE_FAILED_PRECONDITION, "another thread is inside"); /* whatever the handle */
  FAILS(moe_group_barrier(s.extra, NULL), MOE_FAILED_PRECONDITION, "another thread is inside");
  moe_group_destroy(s.extra); /* freed when the thread inside leaves: no wait here */
  moe_layer_destroy(layer);
  pthread_barrier_wait((pthread_barrier_t*)r->shared);
  moe_work_destroy(work); /* waits for the thread inside, then for the operation: the buffer is ours again */
  CHECK(strcmp(late, "xyz") == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(strcmp(s.got, "abc") == 0);
  pthread_barrier_destroy(&s.start);
  OK(moe_engine_describe(r->engine, &json));
  moe_string_destroy(json);
}

/* ---- any order of destruction */

static void test_destroy_order(void) {
  int order;
  for (order = 0; order < 2; ++order) {
    moe_engine* e = lone_engine(kConfig);
    moe_group* g = NULL;
    moe_layer* l = NULL;
    moe_model* m = NULL;
    moe_work* w = NULL;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    double d = 2;
    OK(moe_group_world(e, &g));
    OK(moe_layer_create(e, g, &l));
    OK(moe_model_create(e, &m));
    OK(moe_group_all_reduce(g, &d, 1, MOE_FLOAT64, MOE_SUM, &w));
    OK(moe_layer_forward(l, x, 1, NULL, y, NULL));
    if (order == 0) {
      moe_engine_destroy(e);
      moe_group_destroy(g);
      OK(moe_layer_backward(l, x, 1, y)); /* works without the handles that it was made from */
      CHECK(moe_model_num_parameters(m) > 0);
      moe_layer_destroy(l);
      moe_model_destroy(m);
      moe_work_destroy(w);
    } else {
      moe_work_destroy(w);
      moe_model_destroy(m);
      moe_layer_destroy(l);
      moe_group_destroy(g);
      moe_engine_destroy(e);
    }
  }
}

/* ---- fork */

static void test_fork(void) {
  moe_engine* e = lone_engine(kConfig);
  moe_group* g = NULL;
  moe_layer* l = NULL;
  moe_model* m = NULL;
  moe_work* w = NULL;
  moe_inproc* world = NULL;
  char* json = NULL;
  int status = 0;
  pid_t child;
  double d = 2;
  OK(moe_group_world(e, &g));
  OK(moe_layer_create(e, g, &l));
  OK(moe_model_create(e, &m));
  OK(moe_inproc_create(2, &world));
  OK(moe_group_all_reduce(g, &d, 1, MOE_FLOAT64, MOE_SUM, &w));
  fflush(NULL);
  child = fork();
  if (child == 0) {
    moe_config* c = parse_config("transport { kind: 'inproc' }"); /* a configuration is plain memory: it works */
    moe_engine_options o;
    moe_engine* other = NULL;
    int64_t count[4];
    float x[8] = {0};
    moe_step_stats s;
    MOE_INIT(s);
#define FORKED(call) FAILS(call, MOE_FAILED_PRECONDITION, "before fork()")
    FORKED(moe_engine_describe(e, &json));
    FORKED(moe_engine_abort(e, "x"));
    FORKED(moe_engine_shutdown(e));
    FORKED(moe_group_world(e, &g));
    FORKED(moe_group_from_mesh(e, MOE_GROUP_EP, &g));
    FORKED(moe_group_barrier(g, NULL));
    FORKED(moe_work_wait(w));
    FORKED(moe_layer_create(e, g, &l));
    FORKED(moe_layer_forward(l, x, 1, NULL, x, NULL));
    FORKED(moe_layer_expert_count(l, count, 4));
    FORKED(moe_model_create(e, &m));
    FORKED(moe_model_optimizer_step(m, &s));
    FORKED(moe_model_save(m, "/tmp/x", NULL));
    MOE_INIT(o);
    o.world_size = 2;
    o.inproc = world;
    FORKED(moe_engine_create(c, &o, &other));
    moe_work_destroy(w); /* these let go without touching what is the parent's */
    moe_model_destroy(m);
    moe_layer_destroy(l);
    moe_group_destroy(g);
    moe_engine_destroy(e);
    moe_inproc_destroy(world);
    OK(moe_config_set(c, "steps", "1"));
    _exit(17);
  }
  CHECK(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17);
  OK(moe_work_wait(w));
  CHECK(d == 2);
  OK(moe_engine_describe(e, &json)); /* the parent goes on */
  moe_string_destroy(json);
  moe_work_destroy(w);
  moe_model_destroy(m);
  moe_layer_destroy(l);
  moe_group_destroy(g);
  moe_inproc_destroy(world);
  moe_engine_destroy(e);
}

/* ---- log */

typedef struct { int calls; int32_t level; char text[256]; } seen_t;

static void remember(void* user, int32_t level, const char* message) {
  seen_t* s = (seen_t*)user;
  ++s->calls;
  s->level = level;
  snprintf(s->text, sizeof(s->text), "%s", message);
}

static void test_log(void) {
  moe_config* c = parse_config("threads: 1 model { top_k: 1 }"); /* a mixtral gate whose router learns nothing */
  moe_engine_options o;
  moe_engine* e = NULL;
  seen_t seen;
  memset(&seen, 0, sizeof(seen));
  MOE_INIT(o);
  o.log = remember;
  o.log_user_data = &seen;
  OK(moe_engine_create(c, &o, &e));
  CHECK(seen.calls == 1 && seen.level == 2 && strstr(seen.text, "top_k") != NULL);
  moe_engine_destroy(e);
  moe_config_destroy(c);
}

/* ---- abort, and a rank that goes without a word */

/* All ranks have an engine. */
static pthread_barrier_t opened;

static void* abort_from_outside(void* p) {
  OK(moe_engine_abort(((rank_t*)p)->engine, "the user has pressed stop"));
  return NULL;
}

static void* aborted_rank(void* p) {
  rank_t* r = (rank_t*)p;
  moe_engine_options o;
  pthread_t other;
  moe_status* s;
  char byte = 0;
  MOE_INIT(o);
  o.rank = r->rank;
  o.world_size = r->size;
  o.inproc = r->inproc;
  OK(moe_engine_create(r->config, &o, &r->engine));
  OK(moe_group_world(r->engine, &r->world));
  pthread_barrier_wait(&opened);
  if (r->rank == 1 && r->shared == NULL) CHECK(pthread_create(&other, NULL, abort_from_outside, r) == 0);
  if (r->rank == 1 && r->shared != NULL) { /* leaves without shutdown */
    moe_group_destroy(r->world);
    moe_engine_destroy(r->engine);
    return NULL;
  }
  s = moe_group_recv(r->world, &byte, 1, (r->rank + 1) % r->size, 0, NULL); /* which nobody sends */
  if (r->shared == NULL) {
    CHECK(moe_status_code(s) == MOE_CANCELLED && strstr(moe_status_message(s), "the user has pressed stop") != NULL && moe_status_origin_rank(s) == 1);
  } else {
    CHECK(moe_status_code(s) == MOE_UNAVAILABLE && moe_status_num_failed_ranks(s) == 1 && moe_status_failed_rank(s, 0) == 1);
  }
  FAILS(moe_group_barrier(r->world, NULL), moe_status_code(s), moe_status_message(s)); /* from now on */
  moe_status_destroy(s);
  if (r->rank == 1 && r->shared == NULL) CHECK(pthread_join(other, NULL) == 0);
  moe_group_destroy(r->world);
  moe_engine_destroy(r->engine);
  return NULL;
}

static void test_abort(int leaves) {
  rank_t ranks[3];
  int i;
  moe_inproc* inproc = NULL;
  moe_config* c = parse_config(kConfig);
  OK(moe_config_set(c, "transport", "inproc"));
  OK(moe_inproc_create(3, &inproc));
  memset(ranks, 0, sizeof(ranks));
  pthread_barrier_init(&opened, NULL, 4);
  for (i = 0; i < 3; ++i) {
    ranks[i].rank = i;
    ranks[i].size = 3;
    ranks[i].inproc = inproc;
    ranks[i].config = c;
    ranks[i].shared = leaves ? &ranks[i] : NULL;
    CHECK(pthread_create(&ranks[i].thread, NULL, aborted_rank, &ranks[i]) == 0);
  }
  pthread_barrier_wait(&opened);
  moe_inproc_destroy(inproc); /* the engines keep what they need */
  for (i = 0; i < 3; ++i) CHECK(pthread_join(ranks[i].thread, NULL) == 0);
  pthread_barrier_destroy(&opened);
  moe_config_destroy(c);
}

int main(void) {
  pthread_barrier_t enough;
  test_destroy_order();
  test_log();
  test_fork();
  pthread_barrier_init(&enough, NULL, 2);
  run_ranks(3, kConfig, second_thread_body, &enough);
  pthread_barrier_destroy(&enough);
  test_abort(0);
  test_abort(1);
  return 0;
}
