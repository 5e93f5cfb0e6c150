/* One MoE layer: two ranks that share the experts give what one rank with all tokens gives, however the tokens are split; and what one
 * rank gives are the derivatives of the outputs and of the balancing losses. */
#include <math.h>

#include "capi/tests/c_test_util.h"

enum { T = 7, D = 8, E = 4, K = 2, MOST_PARAMETERS = 64 };

typedef struct {
  char name[64];
  int64_t size;
  double grad[64];
} grad_t;

/* What a call gives, over all ranks: tokens in the order of the ranks. */
typedef struct {
  double y[T * D], dx[T * D], weights[T * K];
  int32_t ids[T * K];
  int64_t count[E];
  moe_layer_stats stats;
  grad_t grads[MOST_PARAMETERS];
  int num_grads;
} result_t;

typedef struct {
  const char* config;
  int is_double, top_k, masked;
  int64_t split;   /* tokens of rank 0 */
  int64_t tokens;
  result_t* result;
  pthread_mutex_t mutex;
} case_t;

static double number(int64_t i) { return sin(0.7 * (double)(i % 97) + 0.3) + 0.2 * cos(3.1 * (double)i); }

/* x[i] = number(first + i) in the type of the layer; back again. */
static void fill(void* x, int is_double, int64_t first, int64_t n) {
  int64_t i;
  for (i = 0; i < n; ++i) {
    if (is_double) ((double*)x)[i] = number(first + i);
    else ((float*)x)[i] = (float)number(first + i);
  }
}
static void widen(const void* x, int is_double, double* out, int64_t n) {
  int64_t i;
  for (i = 0; i < n; ++i) out[i] = is_double ? ((const double*)x)[i] : ((const float*)x)[i];
}

static void run_layer(moe_engine* e, moe_group* g, case_t* c, int64_t first, int64_t n) {
  moe_layer* l = NULL;
  double x[T * D], y[T * D], dy[T * D], dx[T * D], w[T * K];
  int32_t ids[T * K];
  uint8_t valid[T];
  int64_t i, p, count[E];
  moe_layer_stats stats;
  result_t* r = c->result;
  int twice;
  OK(moe_layer_create(e, g, &l));
  fill(x, c->is_double, first * D, n * D);
  fill(dy, c->is_double, 1000 + first * D, n * D);
  for (i = 0; i < n; ++i) valid[i] = (uint8_t)((first + i) % 3 != 1);
  MOE_INIT(stats);
  for (twice = 0; twice < 2; ++twice) { /* the second call, on memory that the first one has left */
    OK(moe_layer_zero_grad(l));
    OK(moe_layer_forward(l, x, n, c->masked ? valid : NULL, y, &stats));
    OK(moe_layer_backward(l, dy, 0.5, dx));
  }
  OK(moe_layer_expert_count(l, count, E));
  OK(moe_layer_routing(l, ids, w));
  pthread_mutex_lock(&c->mutex);
  widen(y, c->is_double, r->y + first * D, n * D);
  widen(dx, c->is_double, r->dx + first * D, n * D);
  widen(w, c->is_double, r->weights + first * c->top_k, n * c->top_k);
  memcpy(r->ids + first * c->top_k, ids, (size_t)(n * c->top_k) * sizeof(int32_t));
  if (r->num_grads > 0) { /* every rank knows the same of all ranks */
    CHECK(memcmp(r->count, count, sizeof(count)) == 0 && r->stats.tokens == stats.tokens && r->stats.aux_loss == stats.aux_loss && r->stats.dropped_routes == stats.dropped_routes);
  }
  memcpy(r->count, count, sizeof(count));
  r->stats = stats;
  for (p = 0; p < moe_layer_num_parameters(l); ++p) {
    moe_parameter q;
    grad_t* at = NULL;
    double grad[64];
    int k;
    MOE_INIT(q);
    OK(moe_layer_parameter(l, p, &q));
    CHECK(q.dtype == (c->is_double ? MOE_FLOAT64 : MOE_FLOAT32));
    CHECK(q.ndim == 2 && q.shape[0] * q.shape[1] <= 64 && q.shape[0] == q.global_shape[0] && q.begin[0] == 0);
    widen(q.grad, c->is_double, grad, q.shape[0] * q.shape[1]);
    for (k = 0; k < r->num_grads; ++k) {
      if (strcmp(r->grads[k].name, q.name) == 0) at = &r->grads[k];
    }
    if (at == NULL) {
      CHECK(r->num_grads < MOST_PARAMETERS);
      at = &r->grads[r->num_grads++];
      snprintf(at->name, sizeof(at->name), "%s", q.name);
      at->size = q.shape[0] * q.shape[1];
    } else {
      CHECK(q.is_expert == 0); /* an expert is on one rank; the router's gradient is this rank's share */
    }
    for (i = 0; i < at->size; ++i) at->grad[i] += grad[i];
  }
  pthread_mutex_unlock(&c->mutex);
  moe_layer_destroy(l);
}

static void body(rank_t* r) {
  case_t* c = (case_t*)r->shared;
  if (r->size == 1) run_layer(r->engine, r->world, c, 0, c->tokens);
  else run_layer(r->engine, r->world, c, r->rank == 0 ? 0 : c->split, r->rank == 0 ? c->split : c->tokens - c->split);
}

static void compare(const double* a, const double* b, int64_t n, double tolerance, const char* what) {
  int64_t i;
  for (i = 0; i < n; ++i) {
    if (fabs(a[i] - b[i]) <= tolerance * (1 + fabs(a[i]))) continue;
    fprintf(stderr, "%s[%d]: %.17g on one rank, %.17g on two\n", what, (int)i, a[i], b[i]);
    exit(1);
  }
}

static void test_case(const char* config, int is_double, int top_k, int masked, int64_t tokens, int64_t split) {
  static result_t one, two;
  case_t c;
  const double tolerance = is_double ? 1e-12 : 1e-5;
  double moved = 0;
  int i, k;
  memset(&one, 0, sizeof(one));
  memset(&two, 0, sizeof(two));
  memset(&c, 0, sizeof(c));
  c.config = config;
  c.is_double = is_double;
  c.top_k = top_k;
  c.masked = masked;
  c.tokens = tokens;
  c.split = split;
  pthread_mutex_init(&c.mutex, NULL);
  c.result = &one;
  run_ranks(1, config, body, &c);
  c.result = &two;
  run_ranks(2, config, body, &c);
  pthread_mutex_destroy(&c.mutex);
  compare(one.y, two.y, tokens * D, tolerance, "y");
  compare(one.dx, two.dx, tokens * D, tolerance, "dx");
  compare(one.weights, two.weights, tokens * top_k, tolerance, "weights");
  CHECK(memcmp(one.ids, two.ids, (size_t)(tokens * top_k) * sizeof(int32_t)) == 0);
  CHECK(memcmp(one.count, two.count, sizeof(one.count)) == 0);
  compare(&one.stats.aux_loss, &two.stats.aux_loss, 1, tolerance, "aux_loss");
  compare(&one.stats.z_loss, &two.stats.z_loss, 1, tolerance, "z_loss");
  CHECK(one.stats.tokens == two.stats.tokens && one.stats.dropped_routes == two.stats.dropped_routes);
  CHECK(one.stats.tokens == (masked ? tokens - (tokens + 1) / 3 : tokens));
  CHECK(one.num_grads == 1 + 3 * E && two.num_grads == one.num_grads);
  for (i = 0; i < one.num_grads; ++i) {
    for (k = 0; k < two.num_grads && strcmp(one.grads[i].name, two.grads[k].name) != 0; ++k) continue;
    CHECK(k < two.num_grads);
    compare(one.grads[i].grad, two.grads[k].grad, one.grads[i].size, tolerance, one.grads[i].name);
    for (k = 0; k < (int)one.grads[i].size; ++k) moved += fabs(one.grads[i].grad[k]);
  }
  CHECK(tokens == 0 ? moved == 0 : moved > 0.1);
  for (i = 0; masked && i < tokens; ++i) { /* no expert, no output */
    if (i % 3 != 1) continue;
    CHECK(one.y[i * D] == 0 && one.ids[i * top_k] == -1 && one.weights[i * top_k] == 0);
  }
}

#define MODEL(dtype, k) "threads: 1 model { d_model: 8 num_heads: 1 num_kv_heads: 1 num_global_experts: 4 d_hidden: 6 top_k: " k " dtype: '" dtype "' } "

/* sum(dy y) + scale (aux_coef aux + z_coef z): what backward differentiates. */
static double objective(moe_layer* l, const double* x, const double* dy, double scale) {
  double y[T * D], sum = 0;
  moe_layer_stats s;
  int i;
  MOE_INIT(s);
  OK(moe_layer_forward(l, x, T, NULL, y, &s));
  for (i = 0; i < T * D; ++i) sum += dy[i] * y[i];
  return sum + scale * (0.3 * s.aux_loss + 0.2 * s.z_loss);
}

static void test_gradient(double scale) {
  moe_engine* e = lone_engine(MODEL("float64", "2") "device: 'reference' gate { aux_loss_coef: 0.3 z_loss_coef: 0.2 }");
  moe_group* g = NULL;
  moe_layer* l = NULL;
  double x[T * D], dy[T * D], dx[T * D], y[T * D], up, down;
  const double h = 1e-6;
  int64_t p, i;
  OK(moe_group_world(e, &g));
  OK(moe_layer_create(e, g, &l));
  fill(x, 1, 0, T * D);
  fill(dy, 1, 1000, T * D);
  OK(moe_layer_zero_grad(l));
  OK(moe_layer_forward(l, x, T, NULL, y, NULL));
  OK(moe_layer_backward(l, dy, scale, dx));
  for (i = 0; i < T * D; ++i) {
    const double keep = x[i];
    x[i] = keep + h;
    up = objective(l, x, dy, scale);
    x[i] = keep - h;
    down = objective(l, x, dy, scale);
    x[i] = keep;
    CHECK(fabs((up - down) / (2 * h) - dx[i]) < 1e-7 * (1 + fabs(dx[i])));
  }
  for (p = 0; p < moe_layer_num_parameters(l); ++p) {
    moe_parameter q;
    MOE_INIT(q);
    OK(moe_layer_parameter(l, p, &q));
    for (i = 0; i < q.shape[0] * q.shape[1]; i += 3) {
      double* at = (double*)q.value + i;
      const double keep = *at, grad = ((const double*)q.grad)[i];
      *at = keep + h;
      up = objective(l, x, dy, scale);
      *at = keep - h;
      down = objective(l, x, dy, scale);
      *at = keep;
      if (!(fabs((up - down) / (2 * h) - grad) < 1e-7 * (1 + fabs(grad)))) fprintf(stderr, "%s[%d]: %.9g, by differences %.9g\n", q.name, (int)i, grad, (up - down) / (2 * h));
      CHECK(fabs((up - down) / (2 * h) - grad) < 1e-7 * (1 + fabs(grad)));
    }
  }
  moe_layer_destroy(l);
  moe_group_destroy(g);
  moe_engine_destroy(e);
}

int main(void) {
  const int64_t splits[] = {7, 0, 4, 1};
  size_t i;
  for (i = 0; i < sizeof(splits) / sizeof(splits[0]); ++i) {
    test_case(MODEL("float64", "2") "device: 'reference'", 1, 2, 0, T, splits[i]);
    test_case(MODEL("float32", "2") "device: 'cpu'", 0, 2, (int)i % 2, T, splits[i]);
    test_case(MODEL("float64", "2") "device: 'reference' gate { capacity_factor: 0.8 capacity_scope: 'global' drop_policy: 'probability' }", 1, 2, 0, T, splits[i]);
    test_case(MODEL("float64", "1") "device: 'reference' gate { kind: 'switch' jitter: 0.3 }", 1, 1, 1, T, splits[i]); /* noise is the tokens', not the ranks' */
  }
  test_case(MODEL("float64", "2") "device: 'reference'", 1, 2, 0, 0, 0); /* no token anywhere */
  test_gradient(0);
  test_gradient(1);
  test_gradient(2.5);
  return 0;
}
