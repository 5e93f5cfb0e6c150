#!/bin/bash
# libmoe.so exports the functions of the header, each with the version MOE_1.0, and nothing else; it needs no UCX, CUDA, NCCL or
# BLAS to be loaded.
set -euo pipefail
so=$1 h=$2
want=$(grep -E '^MOE_API ' "$h" | grep -oE 'moe_[a-z0-9_]+\(' | tr -d '(' | sort)
[ "$(echo "$want" | wc -l)" = "$(grep -cE '^MOE_API ' "$h")" ]
got=$(nm -D --defined-only --extern-only "$so" | awk '$2 != "A" {print $3}' | sort)
diff <(echo "$want" | sed 's/$/@@MOE_1.0/') <(echo "$got")
dynamic=$(readelf -d "$so")
echo "$dynamic" | grep -E 'NEEDED|SONAME'
echo "$dynamic" | grep -q 'SONAME.*\[libmoe\.so\.1\]'
if echo "$dynamic" | grep NEEDED | grep -iE 'ucp|ucs|uct|ucx|cuda|cudart|nccl|blas|mpi'; then
  echo "libmoe.so must load on a machine without these"; exit 1
fi
if echo "$dynamic" | grep -E 'RPATH|RUNPATH|TEXTREL'; then exit 1; fi
