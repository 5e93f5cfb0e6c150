/* Ranks that are processes over UCX: each child makes its own engine; collectives and a training step give what one rank gives. */
#include <arpa/inet.h>
#include <math.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/tests/c_test_util.h"

static const char kConfig[] =
    "threads: 1 transport { kind: 'ucx' timeout_s: 30 }\n"
    "model { vocab_size: 11 num_layers: 1 d_model: 8 num_heads: 2 num_kv_heads: 1 num_global_experts: 4 top_k: 2 d_hidden: 6 }\n"
    "train { seq_len: 4 global_batch: 2 }";

static int64_t free_port(void) {
  struct sockaddr_in a;
  socklen_t n = sizeof(a);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  memset(&a, 0, sizeof(a));
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(fd >= 0 && bind(fd, (struct sockaddr*)&a, sizeof(a)) == 0 && getsockname(fd, (struct sockaddr*)&a, &n) == 0);
  close(fd);
  return ntohs(a.sin_port);
}

/* The loss of a step over sequences `begin` to `end` of two. */
static double loss_of_step(moe_engine* e, int64_t begin, int64_t end) {
  const int32_t ids[8] = {0, 1, 2, 3, 4, 5, 6, 7}, labels[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  moe_model* m = NULL;
  moe_batch b;
  moe_step_stats s;
  OK(moe_model_create(e, &m));
  MOE_INIT(b);
  MOE_INIT(s);
  b.ids = ids + 4 * begin;
  b.labels = labels + 4 * begin;
  b.batch = end - begin;
  b.seq = 4;
  b.first_sample = begin;
  OK(moe_model_train_step(m, &b, &s));
  OK(moe_model_train_step(m, &b, &s));
  moe_model_destroy(m);
  return s.loss;
}

static void run_rank(int64_t rank, int64_t size, int64_t port, double expected) {
  moe_config* c = parse_config(kConfig);
  moe_engine_options o;
  moe_engine* e = NULL;
  moe_group* g = NULL;
  char* json = NULL;
  int64_t x = rank;
  double loss;
  MOE_INIT(o);
  o.rank = rank;
  o.world_size = size;
  o.host = "127.0.0.1";
  o.port = port;
  o.job_id = "ucx_test";
  OK(moe_engine_create(c, &o, &e));
  OK(moe_group_world(e, &g));
  OK(moe_group_all_reduce(g, &x, 1, MOE_INT64, MOE_SUM, NULL));
  CHECK(x == 1);
  loss = loss_of_step(e, rank, rank + 1);
  if (fabs(loss - expected) > 1e-5 * expected) fprintf(stderr, "loss %.9g, one rank has %.9g\n", loss, expected);
  CHECK(fabs(loss - expected) <= 1e-5 * expected);
  OK(moe_engine_describe(e, &json));
  CHECK(strstr(json, "\"transport\":\"ucx\"") != NULL && strstr(json, rank == 0 ? "rank 1: " : "rank 0: ") != NULL);
  moe_string_destroy(json);
  moe_group_destroy(g);
  OK(moe_engine_shutdown(e));
  moe_engine_destroy(e);
  moe_config_destroy(c);
}

int main(void) {
  const int64_t port = free_port();
  pid_t children[2];
  moe_engine* alone;
  double expected;
  int i, status = 0;
  alone = lone_engine(kConfig); /* an engine of the parent is no harm to the children */
  expected = loss_of_step(alone, 0, 2);
  for (i = 0; i < 2; ++i) {
    children[i] = fork();
    if (children[i] == 0) {
      alarm(60);
      run_rank(i, 2, port, expected);
      _exit(0);
    }
    CHECK(children[i] > 0);
  }
  for (i = 0; i < 2; ++i) {
    CHECK(waitpid(children[i], &status, 0) == children[i]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  moe_engine_destroy(alone);
  return 0;
}
