/* What the C tests share: checks that say where they failed, and ranks as threads. Plain C99 and POSIX threads. */
#ifndef MOE_CAPI_TESTS_C_TEST_UTIL_H_
#define MOE_CAPI_TESTS_C_TEST_UTIL_H_

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capi/moe.h"

#define CHECK(condition) check_true((condition) != 0, #condition, __FILE__, __LINE__)
#define OK(expr) check_ok((expr), #expr, __FILE__, __LINE__)
/* The status has this code and its message holds this text (several: separated by '|'). */
#define FAILS(expr, code, text) check_fails((expr), (code), (text), #expr, __FILE__, __LINE__)
#define BAD(expr, text) FAILS(expr, MOE_INVALID_ARGUMENT, text)

static inline void check_true(int ok, const char* what, const char* file, int line) {
  if (ok) return;
  fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
  exit(1);
}

static inline void check_ok(moe_status* s, const char* what, const char* file, int line) {
  if (s == NULL) return;
  fprintf(stderr, "%s:%d: %s: code %d: %s\n", file, line, what, (int)moe_status_code(s), moe_status_message(s));
  exit(1);
}

static inline void check_fails(moe_status* s, int32_t code, const char* text, const char* what, const char* file, int line) {
  char parts[1024];
  char* part;
  char* rest = NULL;
  if (s == NULL) {
    fprintf(stderr, "%s:%d: %s succeeded, expected code %d: %s\n", file, line, what, (int)code, text);
    exit(1);
  }
  check_true(strlen(text) < sizeof(parts), "a short text", file, line);
  strcpy(parts, text);
  for (part = strtok_r(parts, "|", &rest); part != NULL; part = strtok_r(NULL, "|", &rest)) {
    if (strstr(moe_status_message(s), part) == NULL || moe_status_code(s) != code) {
      fprintf(stderr, "%s:%d: %s: code %d: %s\n  expected code %d and '%s'\n", file, line, what, (int)moe_status_code(s), moe_status_message(s), (int)code, part);
      exit(1);
    }
  }
  CHECK(moe_status_code(s) == code);
  moe_status_destroy(s);
}

static inline moe_config* parse_config(const char* text) {
  moe_config* c = NULL;
  OK(moe_config_parse(text, &c));
  return c;
}

/* An engine of one rank. */
static inline moe_engine* lone_engine(const char* config_text) {
  moe_config* c = parse_config(config_text);
  moe_engine_options o;
  moe_engine* e = NULL;
  MOE_INIT(o);
  OK(moe_engine_create(c, &o, &e));
  moe_config_destroy(c);
  return e;
}

/* ---- ranks as threads: each calls body(rank) with its engine, then leaves in good order */

typedef struct rank_t rank_t;
struct rank_t {
  int64_t rank, size;
  moe_inproc* inproc;
  const moe_config* config;
  moe_engine* engine;
  moe_group* world;
  void* shared;
  void (*body)(rank_t*);
  pthread_t thread;
};

static inline void* rank_main(void* p) {
  rank_t* r = (rank_t*)p;
  moe_engine_options o;
  MOE_INIT(o);
  o.rank = r->rank;
  o.world_size = r->size;
  o.inproc = r->inproc;
  OK(moe_engine_create(r->config, &o, &r->engine));
  OK(moe_group_world(r->engine, &r->world));
  r->body(r);
  moe_group_destroy(r->world);
  OK(moe_engine_shutdown(r->engine));
  moe_engine_destroy(r->engine);
  return NULL;
}

static inline void run_ranks(int64_t size, const char* config_text, void (*body)(rank_t*), void* shared) {
  rank_t ranks[8];
  int64_t i;
  moe_inproc* inproc = NULL;
  moe_config* config = parse_config(config_text);
  CHECK(size <= 8);
  OK(moe_config_set(config, "transport", "inproc"));
  OK(moe_inproc_create(size, &inproc));
  for (i = 0; i < size; ++i) {
    memset(&ranks[i], 0, sizeof(ranks[i]));
    ranks[i].rank = i;
    ranks[i].size = size;
    ranks[i].inproc = inproc;
    ranks[i].config = config;
    ranks[i].shared = shared;
    ranks[i].body = body;
    CHECK(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]) == 0);
  }
  for (i = 0; i < size; ++i) CHECK(pthread_join(ranks[i].thread, NULL) == 0);
  moe_inproc_destroy(inproc);
  moe_config_destroy(config);
}

#endif
