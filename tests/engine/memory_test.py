"""Resident memory is flat over 1000 training steps, although the number of rows of every expert changes at each (case M2)."""
import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from tests.lib.moe_ctypes import Library, Model

VOCAB, BATCH, SEQ = 97, 8, 64
FIELDS = {"model.vocab_size": VOCAB, "model.num_layers": 2, "model.d_model": 32, "model.num_heads": 4, "model.num_kv_heads": 2, "model.d_hidden": 64,
          "train.seq_len": SEQ, "train.global_batch": BATCH, "gate.capacity_factor": 1.5, "steps": 1000, "ranks": 1, "threads": 2}


def resident_kib():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


class MemoryTest(unittest.TestCase):
    def test_resident_memory_is_flat(self):
        model = Model(Library(), FIELDS)
        rng = np.random.default_rng(1)
        seen = []
        for step in range(1000):
            n = int(rng.integers(1, BATCH + 1))
            text = rng.integers(0, VOCAB, (n, SEQ + 1), dtype=np.int32)
            model.step(np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:]))
            if step in (100, 999):
                seen.append(resident_kib())
        model.close()
        # A leak of one small object per step and layer would be megabytes.
        self.assertLess(seen[1] - seen[0], 1024, f"KiB resident after 100 and 1000 steps: {seen}")


if __name__ == "__main__":
    unittest.main()
