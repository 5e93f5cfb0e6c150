#!/bin/bash
# The program of docs/c-api.md, compiled as the page says, learns its sentence.
set -euo pipefail
page=$1 h=$2 so=$3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/capi" && cp -L "$h" "$work/capi/moe.h" && cp -L "$so" "$work/capi/libmoe.so.1"
awk '/^```c$/ {on = 1; next} /^```$/ {on = 0} on' "$page" > "$work/first.c"
grep -q 'gcc -std=c99 -I\. first\.c bazel-bin/capi/libmoe\.so\.1 -Wl,-rpath,\$PWD/bazel-bin/capi -o first' "$page"
cd "$work"
gcc -std=c99 -Wall -Wextra -Werror -I. first.c capi/libmoe.so.1 -Wl,-rpath,"$PWD/capi" -o first
./first | tee out
lines=$(wc -l < first.c)
[ "$lines" -le 50 ] || { echo "the first program has $lines lines"; exit 1; }
grep -qE '^step 59  loss 0\.[0-2]' out
grep -q ' sat on the ' out
