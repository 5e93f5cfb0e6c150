// The gate by itself: what a log callback in the middle of a call may and may not do.
#include "capi/gate.h"

#include <thread>

#include "gtest/gtest.h"

namespace moe::capi {
namespace {

struct Counted final : Handle {
  explicit Counted(int* n) : Handle(nullptr), alive(n) { ++*alive; }
  ~Counted() override { --*alive; }
  int* alive;
};

TEST(GateTest, OneCallAtATime) {
  Gate gate;
  ASSERT_TRUE(gate.Enter().ok());
  absl::Status again = gate.Enter(), other;
  std::thread([&] { other = gate.Enter(); }).join();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(again.message()).find("log callback"), std::string::npos);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(other.message()).find("another thread"), std::string::npos);
  gate.Leave();
  std::thread([&] { other = gate.Enter(); gate.Leave(); }).join();
  EXPECT_TRUE(other.ok());
  EXPECT_TRUE(gate.Enter().ok());
  gate.Leave();
}

TEST(GateTest, HandlesDestroyedInsideAreFreedAtTheEndOfTheCall) {
  int alive = 0;
  Gate gate;
  gate.Free(new Counted(&alive));
  EXPECT_EQ(alive, 0);   // at once
  ASSERT_TRUE(gate.Enter().ok());
  gate.Free(new Counted(&alive));
  std::thread([&] { gate.Free(new Counted(&alive)); }).join();
  EXPECT_EQ(alive, 2);
  EXPECT_FALSE(gate.WaitAndEnter());   // would wait for itself
  gate.Leave();
  EXPECT_EQ(alive, 0);
}

TEST(GateTest, WaitAndEnterComesAfterTheCallInside) {
  Gate gate;
  ASSERT_TRUE(gate.Enter().ok());
  int step = 0;
  std::thread waiting([&] {
    EXPECT_TRUE(gate.WaitAndEnter());
    EXPECT_EQ(step, 1);
    gate.Leave();
  });
  step = 1;
  gate.Leave();
  waiting.join();
}

TEST(GateTest, WhatIsLeftGoesWithTheGate) {
  int alive = 0;
  {
    Gate gate;
    ASSERT_TRUE(gate.Enter().ok());
    gate.Free(new Counted(&alive));
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace moe::capi
