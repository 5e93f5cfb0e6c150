#!/bin/bash
# The objects that are compiled for one instruction set must not define symbols that the linker shares with the rest of
# the program (templates and inline functions are weak): the copy it keeps could be the one that the machine cannot run.
set -u
failed=0 seen=0
for library in "$@"; do
  case "$library" in *.a) ;; *) continue ;; esac
  seen=$((seen + 1))
  shared=$(nm -C "$library" | grep -E '^[0-9a-f]* *[VWuC] ')
  if [ -n "$shared" ]; then
    echo "$library defines symbols that other objects may define too:"; echo "$shared"; failed=1
  fi
  nm -C "$library" | grep -qE ' [Tt] moe::(generic|avx2|avx512)::' || { echo "$library holds no kernels"; failed=1; }
done
[ "$seen" -ge 3 ] || { echo "only $seen libraries given: $*"; failed=1; }
exit $failed
