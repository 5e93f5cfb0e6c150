/* Version, info, statuses and the configuration from C. */
#include "capi/tests/c_test_util.h"

static void expect_text(char* got, const char* want, int line) {
  if (strcmp(got, want) != 0) {
    fprintf(stderr, "line %d: '%s', expected '%s'\n", line, got, want);
    exit(1);
  }
  moe_string_destroy(got);
}

static void test_version_and_info(void) {
  int32_t major = -1, minor = -1, patch = -1;
  char* json = NULL;
  const char* keys[] = {"\"cpu\"", "\"cores\"", "\"isa\"", "\"blas\"", "\"ucx\"", "\"found\"", "\"cuda\"", "\"built\"", "\"gates\"", "\"mixtral\"", "\"experts\"", "\"swiglu\"", "\"partitions\"", "\"block\""};
  size_t i;
  moe_version(&major, &minor, &patch);
  CHECK(major == MOE_VERSION_MAJOR && minor == MOE_VERSION_MINOR && patch == MOE_VERSION_PATCH);
  moe_version(NULL, NULL, NULL);
  OK(moe_info(NULL, &json));
  for (i = 0; i < sizeof(keys) / sizeof(keys[0]); ++i) {
    if (strstr(json, keys[i]) == NULL) fprintf(stderr, "no %s in %s\n", keys[i], json);
    CHECK(strstr(json, keys[i]) != NULL);
  }
  moe_string_destroy(json);
  json = NULL;
  OK(moe_info("/nowhere/libucp.so.0", &json)); /* what is missing is told, not an error */
  CHECK(strstr(json, "\"found\":false") != NULL && strstr(json, "\"remedy\"") != NULL);
  moe_string_destroy(json);
  BAD(moe_info(NULL, NULL), "json is NULL");
}

static void test_status(void) {
  moe_status* s;
  moe_config* c = NULL;
  CHECK(moe_status_code(NULL) == MOE_OK);
  CHECK(strcmp(moe_status_message(NULL), "") == 0);
  CHECK(moe_status_origin_rank(NULL) == -1 && moe_status_group(NULL) == -1 && moe_status_epoch(NULL) == -1 && moe_status_sequence(NULL) == -1);
  CHECK(moe_status_num_failed_ranks(NULL) == 0 && moe_status_failed_rank(NULL, 0) == -1);
  moe_status_destroy(NULL);
  moe_string_destroy(NULL);
  s = moe_config_parse("steps: x", &c);
  CHECK(moe_status_code(s) == MOE_INVALID_ARGUMENT);
  CHECK(moe_status_origin_rank(s) == -1 && moe_status_num_failed_ranks(s) == 0 && moe_status_failed_rank(s, 0) == -1 && moe_status_failed_rank(s, -1) == -1);
  moe_status_destroy(s);
  CHECK(c == NULL); /* outputs are untouched on error */
}

static void test_config(void) {
  moe_config *c = NULL, *copy = NULL;
  char *text = NULL, *json = NULL;
  OK(moe_config_create(&c));
  OK(moe_config_set(c, "model.top_k", "1"));
  OK(moe_config_set(c, "gate", "switch"));
  OK(moe_config_copy(c, &copy));
  OK(moe_config_set(copy, "model.top_k", "7"));
  OK(moe_config_get(c, "model.top_k", &text));
  expect_text(text, "1", __LINE__); /* the copy is its own */
  OK(moe_config_get(copy, "model.top_k", &text));
  expect_text(text, "7", __LINE__);
  OK(moe_config_get(c, "checkpoint.keep", &text)); /* a default */
  expect_text(text, "2", __LINE__);
  OK(moe_config_get(c, "gate", &text));
  expect_text(text, "switch", __LINE__);
  OK(moe_config_get(c, "gate.capacity_factor", &text));
  expect_text(text, "", __LINE__);
  OK(moe_config_to_text(c, 0, &text));
  expect_text(text, "model {\n  top_k: 1\n}\ngate {\n  kind: \"switch\"\n}\n", __LINE__);
  OK(moe_config_to_json(c, 1, &json));
  moe_config_destroy(copy);
  OK(moe_config_parse(json, &copy));
  moe_string_destroy(json);
  OK(moe_config_to_text(copy, 1, &text));
  OK(moe_config_to_text(c, 1, &json));
  CHECK(strcmp(text, json) == 0); /* full JSON, read back, is the same configuration */
  moe_string_destroy(text);
  moe_string_destroy(json);
  OK(moe_config_validate(c));

  text = (char*)1;
  BAD(moe_config_set(c, "model.topk", "1"), "there is no field 'model.topk'|model.top_k");
  BAD(moe_config_set(c, "model.top_k", "0"), "model.top_k is 0|at least 1");
  BAD(moe_config_set(c, "model.top_k", "x"), "model.top_k is 'x'|an integer");
  BAD(moe_config_set(c, "transport", "smoke"), "transport.kind is 'smoke'|ucx, inproc");
  BAD(moe_config_get(c, "modell.top_k", &text), "nearest: model.top_k");
  CHECK(text == (char*)1);
  OK(moe_config_set(c, "model.top_k", "2"));
  BAD(moe_config_validate(c), "model.top_k is 2|model.top_k=1");
  OK(moe_config_set(c, "model.top_k", "1"));
  OK(moe_config_set(c, "ranks", "8"));
  OK(moe_config_set(c, "mesh.tp", "8"));
  BAD(moe_config_validate(c), "mesh.tp is 8|model.num_kv_heads, which is 4|mesh.tp=4");
  OK(moe_config_set(c, "mesh.tp", "4"));
  OK(moe_config_validate(c));
  FAILS(moe_config_load("/nowhere/x.textproto", &copy), MOE_NOT_FOUND, "/nowhere/x.textproto");
  BAD(moe_config_parse("{\"model\": {\"top_k\": 0}}", &copy), "model.top_k is 0");
  moe_config_destroy(c);
  moe_config_destroy(copy);
  moe_config_destroy(NULL);
}

static void test_config_file(void) {
  const char* folder = getenv("TEST_TMPDIR");
  char path[512];
  FILE* f;
  moe_config* c = NULL;
  char* text = NULL;
  snprintf(path, sizeof(path), "%s/c.json", folder ? folder : "/tmp");
  f = fopen(path, "w");
  CHECK(f != NULL);
  fputs("{\"model\": {\"d_model\": 64}}", f);
  fclose(f);
  OK(moe_config_load(path, &c));
  OK(moe_config_get(c, "model.d_model", &text));
  expect_text(text, "64", __LINE__);
  moe_config_destroy(c);
  remove(path);
}

static void test_describe(void) {
  char* json = NULL;
  OK(moe_config_describe(&json));
  CHECK(json[0] == '[');
  CHECK(strstr(json, "{\"path\":\"model.top_k\",\"type\":\"integer\",\"default\":\"2\",\"doc\":\"Experts that each token goes to.\",\"min\":1.0,\"max\":1000000.0}") != NULL);
  CHECK(strstr(json, "\"path\":\"gate.kind\"") != NULL && strstr(json, "\"allowed\":\"mixtral,switch\"") != NULL);
  moe_string_destroy(json);
}

static void test_null_arguments(void) {
  moe_config* c = NULL;
  char* text = NULL;
  OK(moe_config_create(&c));
  BAD(moe_config_create(NULL), "argument config is NULL");
  BAD(moe_config_load(NULL, &c), "argument path is NULL");
  BAD(moe_config_load("x", NULL), "argument config is NULL");
  BAD(moe_config_parse(NULL, &c), "argument text is NULL");
  BAD(moe_config_parse("", NULL), "argument config is NULL");
  BAD(moe_config_set(NULL, "steps", "1"), "argument config is NULL");
  BAD(moe_config_set(c, NULL, "1"), "argument path is NULL");
  BAD(moe_config_set(c, "steps", NULL), "argument value is NULL");
  BAD(moe_config_get(NULL, "steps", &text), "argument config is NULL");
  BAD(moe_config_get(c, NULL, &text), "argument path is NULL");
  BAD(moe_config_get(c, "steps", NULL), "argument value is NULL");
  BAD(moe_config_validate(NULL), "argument config is NULL");
  BAD(moe_config_to_text(NULL, 0, &text), "argument config is NULL");
  BAD(moe_config_to_text(c, 0, NULL), "argument text is NULL");
  BAD(moe_config_to_json(NULL, 0, &text), "argument config is NULL");
  BAD(moe_config_to_json(c, 0, NULL), "argument json is NULL");
  BAD(moe_config_describe(NULL), "argument json is NULL");
  BAD(moe_config_copy(NULL, &c), "argument config is NULL");
  BAD(moe_config_copy(c, NULL), "argument copy is NULL");
  CHECK(text == NULL);
  moe_config_destroy(c);
}

int main(void) {
  test_version_and_info();
  test_status();
  test_config();
  test_config_file();
  test_describe();
  test_null_arguments();
  return 0;
}
