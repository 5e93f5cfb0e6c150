#!/bin/bash
# The header alone, as every client compiles it: C99, C11, C17 and C++ by gcc and clang, with all warnings as errors.
set -euo pipefail
h=$1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/capi"; cp -L "$h" "$work/capi/moe.h"
cat > "$work/use.c" <<'C'
#include "capi/moe.h"
#include "capi/moe.h"
int use(moe_engine* e);
int use(moe_engine* e) { moe_batch b; MOE_INIT(b); return moe_engine_rank(e) == 0 && b.struct_size == sizeof(b); }
C
cp "$work/use.c" "$work/use.cc"
compiled=0
for cc in gcc clang-14 clang; do
  command -v "$cc" > /dev/null || continue
  for std in c99 c11 c17; do "$cc" -std=$std -pedantic-errors -Wall -Wextra -Wconversion -Wstrict-prototypes -Werror -I"$work" -fsyntax-only "$work/use.c"; compiled=$((compiled + 1)); done
done
for cxx in g++ clang++-14 clang++; do
  command -v "$cxx" > /dev/null || continue
  for std in c++11 c++17 c++20; do "$cxx" -std=$std -pedantic-errors -Wall -Wextra -Werror -I"$work" -fsyntax-only "$work/use.cc"; compiled=$((compiled + 1)); done
done
# C++ and C see the same names: nothing is mangled.
g++ -std=c++17 -I"$work" -c "$work/use.cc" -o "$work/use.o"
nm "$work/use.o" | grep -q ' U moe_engine_rank$'
echo "$compiled compilations"
[ "$compiled" -ge 6 ]
