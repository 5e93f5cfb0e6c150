/* Which ranks share what: sizes and coordinates, groups of every kind, groups to communicate in, and an MoE layer that is refused a group
 * across pipeline stages. */
#include "capi/tests/c_test_util.h"

enum { FIRST_KIND = MOE_GROUP_TP, LAST_KIND = MOE_GROUP_ENDS, MOST_RANKS = 16 };

static moe_mesh* mesh_of(const char* sizes, int64_t world_size) {
  moe_config* c = parse_config(sizes);
  moe_mesh* m = NULL;
  OK(moe_mesh_create(c, world_size, &m));
  moe_config_destroy(c); /* copied */
  CHECK(moe_mesh_world_size(m) == world_size);
  return m;
}

static int64_t axis_size(const moe_mesh* m, int32_t axis) {
  int64_t size = -1;
  OK(moe_mesh_axis_size(m, axis, &size));
  return size;
}

/* The group of `rank` is `first`, `first` + step ... */
static void expect_group(const moe_mesh* m, int32_t kind, int64_t rank, int64_t size, int64_t first, int64_t step) {
  int64_t members[MOST_RANKS], n = -1, index = -1, i;
  OK(moe_mesh_group(m, kind, rank, &n, &index));
  CHECK(n == size);
  OK(moe_mesh_group_members(m, kind, rank, members, n));
  for (i = 0; i < n; ++i) CHECK(members[i] == first + i * step);
  CHECK(members[index] == rank);
}

static void expect_groups(const moe_mesh* m, int32_t kind, int64_t wanted) {
  int64_t n = -1;
  OK(moe_mesh_num_groups(m, kind, &n));
  CHECK(n == wanted);
}

static void test_sizes_and_groups(void) {
  /* dp and edp are what the others leave. */
  moe_mesh* m = mesh_of("mesh { tp: 2 pp: 2 ep: 8 }", 16);
  int64_t c = -1;
  CHECK(axis_size(m, MOE_AXIS_TP) == 2 && axis_size(m, MOE_AXIS_CP) == 1 && axis_size(m, MOE_AXIS_DP) == 4 && axis_size(m, MOE_AXIS_PP) == 2);
  CHECK(axis_size(m, MOE_AXIS_ETP) == 1 && axis_size(m, MOE_AXIS_EP) == 8 && axis_size(m, MOE_AXIS_EDP) == 1);
  OK(moe_mesh_coordinate(m, MOE_AXIS_PP, 13, &c));
  CHECK(c == 1);
  OK(moe_mesh_coordinate(m, MOE_AXIS_DP, 13, &c));
  CHECK(c == 2);
  OK(moe_mesh_coordinate(m, MOE_AXIS_EP, 13, &c));
  CHECK(c == 5);
  expect_group(m, MOE_GROUP_TP, 13, 2, 12, 1);
  expect_group(m, MOE_GROUP_DP, 13, 4, 9, 2);
  expect_group(m, MOE_GROUP_PP, 13, 2, 5, 8);
  expect_group(m, MOE_GROUP_EP, 13, 8, 8, 1);
  expect_group(m, MOE_GROUP_EDP, 13, 1, 13, 1);
  expect_group(m, MOE_GROUP_STAGE, 13, 8, 8, 1);
  expect_group(m, MOE_GROUP_ENDS, 13, 2, 5, 8);
  expect_groups(m, MOE_GROUP_TP, 8);
  expect_groups(m, MOE_GROUP_PP, 8);
  expect_groups(m, MOE_GROUP_EP, 2);
  expect_groups(m, MOE_GROUP_EDP, 16);
  moe_mesh_destroy(m);
  m = mesh_of("mesh { tp: 2 cp: 2 pp: 2 ep: 4 }", 16);
  expect_group(m, MOE_GROUP_DP_CP, 3, 4, 1, 2);
  expect_group(m, MOE_GROUP_EDP, 6, 2, 2, 4);
  expect_group(m, MOE_GROUP_EP, 6, 4, 4, 1);
  moe_mesh_destroy(m);
  m = mesh_of("mesh { tp: 2 pp: 2 etp: 2 ep: 2 }", 16); /* inner width of experts: neighbours */
  expect_group(m, MOE_GROUP_ETP, 5, 2, 4, 1);
  expect_group(m, MOE_GROUP_EP, 5, 2, 5, 2);
  moe_mesh_destroy(m);
  m = mesh_of("mesh { pp: 4 }", 8); /* between the ends a rank is alone */
  expect_group(m, MOE_GROUP_ENDS, 0, 2, 0, 6);
  expect_group(m, MOE_GROUP_ENDS, 3, 1, 3, 1);
  expect_groups(m, MOE_GROUP_ENDS, 6);
  moe_mesh_destroy(m);
}

/* Every rank is in one group of each kind, and all of its members name the same group. */
static void test_groups_part_the_ranks(void) {
  const char* meshes[] = {"", "mesh { pp: 4 }", "mesh { tp: 2 cp: 2 pp: 2 ep: 4 }", "mesh { tp: 4 pp: 2 etp: 2 ep: 4 }", "mesh { cp: 2 pp: 8 }"};
  int64_t rank, i;
  int32_t kind;
  size_t k;
  for (k = 0; k < sizeof(meshes) / sizeof(meshes[0]); ++k) {
    moe_mesh* m = mesh_of(meshes[k], MOST_RANKS);
    for (kind = FIRST_KIND; kind <= LAST_KIND; ++kind) {
      int64_t firsts = 0, groups = -1;
      for (rank = 0; rank < MOST_RANKS; ++rank) {
        int64_t mine[MOST_RANKS], theirs[MOST_RANKS], n = -1, size = -1, index = -1;
        OK(moe_mesh_group(m, kind, rank, &n, &index));
        firsts += index == 0;
        OK(moe_mesh_group_members(m, kind, rank, mine, n));
        for (i = 0; i < n; ++i) {
          CHECK(i == 0 || mine[i] > mine[i - 1]);
          OK(moe_mesh_group(m, kind, mine[i], &size, NULL));
          CHECK(size == n);
          OK(moe_mesh_group(m, kind, mine[i], NULL, &index));
          CHECK(index == i);
          OK(moe_mesh_group_members(m, kind, mine[i], theirs, n));
          CHECK(memcmp(mine, theirs, (size_t)n * sizeof(int64_t)) == 0);
        }
      }
      OK(moe_mesh_num_groups(m, kind, &groups));
      CHECK(groups == firsts);
    }
    moe_mesh_destroy(m);
  }
}

static void test_arguments(void) {
  moe_config* c = parse_config("ranks: 4 mesh { pp: 2 }");
  moe_mesh *m = NULL, *none = NULL;
  int64_t n = -5, members[2] = {-5, -5};
  OK(moe_mesh_create(c, 0, &m)); /* the configuration's ranks */
  CHECK(moe_mesh_world_size(m) == 4 && moe_mesh_world_size(NULL) == -1);
  BAD(moe_mesh_create(NULL, 4, &none), "argument config is NULL");
  BAD(moe_mesh_create(c, 4, NULL), "argument mesh is NULL");
  BAD(moe_mesh_create(c, -1, &none), "world_size is -1|65536");
  BAD(moe_mesh_create(c, 65537, &none), "world_size is 65537");
  BAD(moe_mesh_create(c, 7, &none), "mesh.pp 2 does not divide ranks, which is 7");
  CHECK(none == NULL);
  BAD(moe_mesh_axis_size(NULL, MOE_AXIS_PP, &n), "argument mesh is NULL");
  BAD(moe_mesh_axis_size(m, MOE_AXIS_PP, NULL), "argument size is NULL");
  BAD(moe_mesh_axis_size(m, -1, &n), "axis is -1|0 to 6");
  BAD(moe_mesh_axis_size(m, 7, &n), "axis is 7|0 to 6");
  BAD(moe_mesh_coordinate(NULL, MOE_AXIS_PP, 0, &n), "argument mesh is NULL");
  BAD(moe_mesh_coordinate(m, MOE_AXIS_PP, 0, NULL), "argument coordinate is NULL");
  BAD(moe_mesh_coordinate(m, 7, 0, &n), "axis is 7");
  BAD(moe_mesh_coordinate(m, MOE_AXIS_PP, 4, &n), "rank is 4|0 to 3");
  BAD(moe_mesh_coordinate(m, MOE_AXIS_PP, -1, &n), "rank is -1");
  BAD(moe_mesh_num_groups(NULL, MOE_GROUP_EP, &n), "argument mesh is NULL");
  BAD(moe_mesh_num_groups(m, MOE_GROUP_EP, NULL), "argument num_groups is NULL");
  BAD(moe_mesh_num_groups(m, 11, &n), "kind is 11|0 to 10");
  BAD(moe_mesh_group(NULL, MOE_GROUP_EP, 0, &n, &n), "argument mesh is NULL");
  BAD(moe_mesh_group(m, -1, 0, &n, &n), "kind is -1|0 to 10");
  BAD(moe_mesh_group(m, MOE_GROUP_EP, 4, &n, &n), "rank is 4|0 to 3");
  BAD(moe_mesh_group_members(NULL, MOE_GROUP_PP, 0, members, 2), "argument mesh is NULL");
  BAD(moe_mesh_group_members(m, MOE_GROUP_PP, 0, NULL, 2), "argument members is NULL");
  BAD(moe_mesh_group_members(m, MOE_GROUP_PP, 1, members, 3), "n is 3|pp group of rank 1|is 2");
  BAD(moe_mesh_group_members(m, MOE_GROUP_PP, -1, members, 2), "rank is -1");
  CHECK(n == -5 && members[0] == -5 && members[1] == -5);
  OK(moe_mesh_group(m, MOE_GROUP_EP, 0, NULL, NULL));
  moe_mesh_destroy(m);
  moe_mesh_destroy(NULL);
  moe_config_destroy(c);
}

/* ---- groups to communicate in */

static const char kPipeline[] =
    "threads: 1 device: 'reference' transport { timeout_s: 20 } mesh { tp: 2 pp: 2 ep: 4 }\n"
    "model { vocab_size: 16 num_layers: 2 d_model: 8 num_heads: 2 num_kv_heads: 2 num_global_experts: 4 top_k: 2 d_hidden: 6 }";

static void communicate_body(rank_t* r) {
  moe_config* c = parse_config(kPipeline);
  moe_mesh* m = NULL;
  moe_group *g = NULL, *none = NULL;
  int64_t i, x, wanted, size, index, members[MOST_RANKS];
  int32_t kind, twice;
  OK(moe_mesh_create(c, r->size, &m));
  for (twice = 0; twice < 2; ++twice) {
    for (kind = FIRST_KIND; kind <= LAST_KIND; ++kind) {
      OK(moe_group_from_mesh(r->engine, kind, &g));
      OK(moe_mesh_group(m, kind, r->rank, &size, &index));
      OK(moe_mesh_group_members(m, kind, r->rank, members, size));
      CHECK(moe_group_size(g) == size && moe_group_rank(g) == index);
      x = (int64_t)1 << r->rank; /* the sum spells who took part */
      OK(moe_group_all_reduce(g, &x, 1, MOE_INT64, MOE_SUM, NULL));
      for (wanted = 0, i = 0; i < size; ++i) wanted += (int64_t)1 << members[i];
      CHECK(x == wanted);
      moe_group_destroy(g); /* the engine keeps it */
    }
  }
  BAD(moe_group_from_mesh(NULL, MOE_GROUP_EP, &none), "argument engine is NULL");
  BAD(moe_group_from_mesh(r->engine, MOE_GROUP_EP, NULL), "argument group is NULL");
  BAD(moe_group_from_mesh(r->engine, 11, &none), "kind is 11|0 to 10");
  CHECK(none == NULL);
  moe_mesh_destroy(m);
  moe_config_destroy(c);
}

/* The world has two stages: a layer over it is refused on every rank, one over the ranks of a stage works. */
static void layer_within_a_stage_body(rank_t* r) {
  const int64_t across[2] = {r->rank % 4, r->rank % 4 + 4};
  moe_group *pipeline = NULL, *made = NULL, *ep = NULL;
  moe_layer* l = NULL;
  float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0}, norm = 0;
  int i;
  char text[160];
  BAD(moe_layer_create(r->engine, r->world, &l), "[0,1,2,3,4,5,6,7]|pipeline axis pp|rank 0 is in stage 0, rank 4 in stage 1|expert-parallel group [0,1,2,3]");
  snprintf(text, sizeof(text), "pipeline axis pp|rank %d is in stage 0, rank %d in stage 1", (int)across[0], (int)across[1]);
  OK(moe_group_from_mesh(r->engine, MOE_GROUP_PP, &pipeline));
  BAD(moe_layer_create(r->engine, pipeline, &l), text);
  OK(moe_group_create(r->engine, 3 + across[0], across, 2, &made));
  BAD(moe_layer_create(r->engine, made, &l), text);
  CHECK(l == NULL);
  OK(moe_group_from_mesh(r->engine, MOE_GROUP_EP, &ep));
  OK(moe_layer_create(r->engine, ep, &l));
  OK(moe_layer_forward(l, in, 1, NULL, out, NULL));
  for (i = 0; i < 8; ++i) norm += out[i] * out[i];
  CHECK(norm > 0);
  moe_layer_destroy(l);
  moe_group_destroy(ep);
  moe_group_destroy(made);
  moe_group_destroy(pipeline);
  OK(moe_group_barrier(r->world, NULL)); /* a refusal ends nothing */
}

int main(void) {
  test_sizes_and_groups();
  test_groups_part_the_ranks();
  test_arguments();
  run_ranks(8, kPipeline, communicate_body, NULL);
  run_ranks(8, kPipeline, layer_within_a_stage_body, NULL);
  return 0;
}
