#include "core/config/text_position.h"

#include "gtest/gtest.h"

namespace moe {
namespace {

// The path at the character '^' (which is taken out).
std::string At(std::string marked) {
  const size_t at = marked.find('^');
  marked.erase(at, 1);
  int line = 0, column = 0;
  for (size_t i = 0; i < at; ++i) {
    if (marked[i] == '\n') { ++line; column = 0; }
    else column = marked[i] == '\t' ? (column / 8 + 1) * 8 : column + 1;
  }
  return FieldPathAt(marked, line, column);
}

TEST(FieldPathAtTest, NamesTheFieldBeforeThePosition) {
  EXPECT_EQ(At("^steps: 1"), "");
  EXPECT_EQ(At("steps: ^x"), "steps");
  EXPECT_EQ(At("steps: 1 model { top_k: ^x }"), "model.top_k");
  EXPECT_EQ(At("model { top_k: 1 d_model: maybe ^}"), "model.d_model");
  EXPECT_EQ(At("model { top_k: 1 } gate < kind: ^x"), "gate.kind");
  EXPECT_EQ(At("model { top_k: 1 }^ gate { }"), "model");
  EXPECT_EQ(At("a { b { c: 1 } d: ^2"), "a.d");
}

TEST(FieldPathAtTest, SkipsCommentsStringsAndTabs) {
  EXPECT_EQ(At("# model { top_k: 1\nsteps: ^x"), "steps");
  EXPECT_EQ(At("run: \"a { b: \\\" }\" steps: ^x"), "steps");
  EXPECT_EQ(At("run: 'a { b:' model {\n\ttop_k:\t^x"), "model.top_k");
  EXPECT_EQ(At("\t\tsteps: ^x ranks: 3"), "steps");
  EXPECT_EQ(At("run: \"unclosed\nsteps: ^x"), "steps");
}

TEST(FieldPathAtTest, AnyTextIsSurvived) {
  EXPECT_EQ(FieldPathAt("}}}} a: ", 5, 0), "a");
  EXPECT_EQ(FieldPathAt("", 3, 3), "");
  EXPECT_EQ(FieldPathAt("\"\\", 9, 9), "");
}

}  // namespace
}  // namespace moe
