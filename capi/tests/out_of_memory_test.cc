// Every single allocation of a call fails in turn: each time the call says RESOURCE_EXHAUSTED, nothing is thrown across the border,
// outputs stay untouched, and the same call succeeds afterwards.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "capi/moe.h"
#include "gtest/gtest.h"

namespace {

thread_local int64_t g_left = -1;   // allocations until one fails; -1: none fails
thread_local bool g_failed = false;

void* Allocate(std::size_t n) {
  if (g_left >= 0 && g_left-- == 0) {
    g_failed = true;
    return nullptr;
  }
  return std::malloc(n ? n : 1);
}

}  // namespace

void* operator new(std::size_t n) {
  if (void* p = Allocate(n)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t n) { return operator new(n); }
// Who asks without exceptions has another way (std::stable_sort does): not counted.
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return std::malloc(n ? n : 1); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return std::malloc(n ? n : 1); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }

namespace {

// Runs `call` until no allocation of it fails; how many times one did.
int64_t Starve(const char* name, const std::function<moe_status*()>& call, const std::function<bool()>& untouched) {
  for (int64_t n = 0;; ++n) {
    g_left = n;
    g_failed = false;
    moe_status* s = call();
    g_left = -1;
    if (s == nullptr) {
      EXPECT_FALSE(g_failed) << name << " took no notice of allocation " << n;
      return n;
    }
    EXPECT_TRUE(g_failed);
    EXPECT_EQ(moe_status_code(s), MOE_RESOURCE_EXHAUSTED) << name << " at allocation " << n << ": " << moe_status_message(s);
    EXPECT_STREQ(moe_status_message(s), "out of memory");
    EXPECT_TRUE(untouched()) << name << " at allocation " << n;
    moe_status_destroy(s);
    if (testing::Test::HasFailure()) return n;
  }
}

constexpr char kConfig[] =
    "device: 'reference' model { vocab_size: 11 num_layers: 2 d_model: 8 num_heads: 2 num_kv_heads: 1 num_global_experts: 4 top_k: 2 d_hidden: 6 } train { seq_len: 4 global_batch: 2 }";

TEST(OutOfMemoryTest, EveryAllocationOfTheMainCalls) {
  moe_config* c = nullptr;
  char* text = nullptr;
  // Tables that protobuf makes once in a process are made before: its code for them does not survive a lack of memory.
  moe_status_destroy(moe_config_describe(&text));
  moe_string_destroy(text);
  text = nullptr;
  ASSERT_EQ(moe_config_parse(kConfig, &c), nullptr);
  moe_config_destroy(c);
  c = nullptr;
  EXPECT_GT(Starve("parse", [&] { return moe_config_parse(kConfig, &c); }, [&] { return c == nullptr; }), 5);
  moe_config* json = nullptr;
  EXPECT_GT(Starve("parse json", [&] { return moe_config_parse("{\"model\": {\"top_k\": 1}}", &json); }, [&] { return json == nullptr; }), 5);
  moe_config_destroy(json);
  EXPECT_GT(Starve("set", [&] { return moe_config_set(c, "run", "a name that is too long for a short string"); }, [&] { return true; }), 3);
  EXPECT_GT(Starve("to_text", [&] { return moe_config_to_text(c, 1, &text); }, [&] { return text == nullptr; }), 5);
  moe_string_destroy(text);
  text = nullptr;
  EXPECT_GT(Starve("to_json", [&] { return moe_config_to_json(c, 1, &text); }, [&] { return text == nullptr; }), 10);
  moe_string_destroy(text);
  text = nullptr;
  EXPECT_GT(Starve("validate", [&] { return moe_config_validate(c); }, [] { return true; }), 10);

  moe_engine_options o;
  MOE_INIT(o);
  moe_engine* e = nullptr;
  EXPECT_GT(Starve("engine", [&] { return moe_engine_create(c, &o, &e); }, [&] { return e == nullptr; }), 10);
  moe_mesh* mesh = nullptr;
  EXPECT_GT(Starve("mesh", [&] { return moe_mesh_create(c, 16, &mesh); }, [&] { return mesh == nullptr; }), 0);
  int64_t members[16] = {-5};
  EXPECT_GT(Starve("members", [&] { return moe_mesh_group_members(mesh, MOE_GROUP_STAGE, 3, members, 16); }, [&] { return members[0] == -5; }), 0);
  moe_mesh_destroy(mesh);
  moe_group* stage = nullptr;
  EXPECT_GT(Starve("group from mesh", [&] { return moe_group_from_mesh(e, MOE_GROUP_STAGE, &stage); }, [&] { return stage == nullptr; }), 0);
  moe_group_destroy(stage);
  moe_group* g = nullptr;
  moe_layer* l = nullptr;
  moe_model* m = nullptr;
  EXPECT_GT(Starve("group", [&] { return moe_group_world(e, &g); }, [&] { return g == nullptr; }), 0);
  EXPECT_GT(Starve("layer", [&] { return moe_layer_create(e, g, &l); }, [&] { return l == nullptr; }), 10);
  EXPECT_GT(Starve("model", [&] { return moe_model_create(e, &m); }, [&] { return m == nullptr; }), 10);

  float x[16] = {1, 2, 3}, y[16] = {};
  y[0] = -5;
  EXPECT_GT(Starve("forward", [&] { return moe_layer_forward(l, x, 2, nullptr, y, nullptr); }, [&] { return y[0] == -5; }), 5);
  const int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8}, labels[8] = {2, 3, 4, 5, 6, 7, 8, 9};
  moe_batch b;
  MOE_INIT(b);
  b.ids = ids;
  b.labels = labels;
  b.batch = 2;
  b.seq = 4;
  moe_step_stats s;
  MOE_INIT(s);
  EXPECT_GT(Starve("forward_backward", [&] { return moe_model_forward_backward(m, &b, &s); }, [&] { return s.tokens == 0; }), 20);
  EXPECT_EQ(s.tokens, 8);

  moe_model_destroy(m);
  moe_layer_destroy(l);
  moe_group_destroy(g);
  moe_engine_destroy(e);
  moe_config_destroy(c);
}

TEST(OutOfMemoryTest, ADeviceThatCannotGiveSoMuch) {
  moe_config* c = nullptr;
  ASSERT_EQ(moe_config_parse("device: 'reference' model { num_global_experts: 64 d_model: 100000 d_hidden: 10000000 num_layers: 1 head_dim: 2 }", &c), nullptr);
  moe_engine_options o;
  MOE_INIT(o);
  moe_engine* e = nullptr;
  ASSERT_EQ(moe_engine_create(c, &o, &e), nullptr);
  moe_model* m = nullptr;
  moe_status* s = moe_model_create(e, &m);
  EXPECT_EQ(moe_status_code(s), MOE_RESOURCE_EXHAUSTED) << moe_status_message(s);
  EXPECT_EQ(m, nullptr);
  moe_status_destroy(s);
  moe_engine_destroy(e);
  moe_config_destroy(c);
}

}  // namespace
