"""moe bench pipeline: schedules take the time that their formulas say; plans of many ranks take none; bad flags are named."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from tests.cli.harness import CliTest


class BenchPipelineTest(CliTest):
    def bench(self, *words):
        r = self.run_moe("bench", "pipeline", *words, tiny=False, data=False)
        return r, [json.loads(l) for l in r.stdout.splitlines() if l.startswith("{")]

    def test_schedules_and_plans(self):
        # Four stages wait for the clock and need no core; a busy machine makes them later, never earlier.
        r, lines = self.bench("--stages=4", "--micro-batches=8", "--steps=5", "--ranks=128,12800")
        self.assertEqual(r.returncode, 0, r.stderr)
        bubble = {l["schedule"]: l for l in lines if l["bench"] == "pipeline"}
        self.assertEqual(sorted(bubble), ["1f1b", "gpipe", "interleaved", "zero_bubble"])
        fill = 3 * 24
        for kind, idle in (("gpipe", fill), ("1f1b", fill), ("interleaved", fill / 2), ("zero_bubble", 3 * 8)):
            self.assertAlmostEqual(bubble[kind]["formula"], idle / (idle + 8 * 24), places=9, msg=kind)
            self.assertGreater(bubble[kind]["ratio"], 0.95, kind)
            self.assertLess(bubble[kind]["ratio"], 1.4, kind)
        self.assertLess(bubble["zero_bubble"]["bubble"], bubble["interleaved"]["bubble"])
        self.assertLess(bubble["interleaved"]["bubble"], bubble["1f1b"]["bubble"])
        plans = [l for l in lines if l["bench"] == "plan"]
        self.assertEqual([p["ranks"] for p in plans], [128, 12800])
        for p in plans:
            self.assertTrue(p["free"])
            self.assertLess(p["seconds"], 6)

    def test_where_interleaved_cannot_be_it_is_left_out(self):
        r, lines = self.bench("--stages=3", "--micro-batches=4", "--steps=1", "--forward-ms=1", "--ranks=8")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual([l["schedule"] for l in lines if l["bench"] == "pipeline"], ["gpipe", "1f1b", "zero_bubble"])
        self.assertIn("multiple", r.stderr)

    def test_bad_flags(self):
        for words, parts in ((["--stages=0"], ["--stages", "0"]), (["--stages=2,x"], ["--stages", "2,x"]), (["--forward-ms=-1"], ["--forward-ms", "-1"]), (["--forward-ms=1", "--backward-ms=2", "--weight-ms=3"], ["backward_weight_ms", "3", "2"]),
                             (["--stages=65", "--micro-batches=65"], ["stages", "65", "64"]), (["--fast"], ["--fast"])):
            r, lines = self.bench(*words)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertEqual(lines, [])
            for part in parts:
                self.assertIn(part, r.stderr)


if __name__ == "__main__":
    unittest.main()
