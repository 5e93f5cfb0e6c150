"""moe plan: published models, seeded mistakes, many ranks, bad input."""
import json
import os
import resource
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from tests.cli.harness import CliTest

PUBLISHED = {"mixtral_8x7b_64": (64, 46.7e9, 12.9e9), "qwen3_235b_a22b_256": (256, 235.1e9, 22.2e9), "deepseek_v3_2048": (2048, 671.0e9, 37.6e9), "trillion_1_75": (96000, 1.75e12, None)}
MISTAKES = {
    "group_across_stages": ["crosses the pipeline axis pp", "ep group"],
    "unfused_send_recv": ["send and receive not fused", "send of activation"],
    "opposite_group_order": ["opposite order", "dense gradients", "replicated gradients"],
    "missing_norm_all_reduce": ["operation missing", "norm"],
    "missing_micro_batch": ["micro-batch missing", "rank 1 "],
}


class PlanTest(CliTest):
    def plan(self, *words):
        return self.run_moe("plan", *words, tiny=False, data=False)

    def config(self, name):
        return os.path.abspath(os.path.join(self.root, "trainer/configs", name + ".textproto"))

    def setUp(self):
        super().setUp()
        self.root = os.getcwd()

    def test_published_models(self):
        for name, (ranks, total, active) in PUBLISHED.items():
            r = self.plan(self.config(name), "--json")
            self.assertEqual(r.returncode, 0, r.stderr)
            j = json.loads(r.stdout)
            self.assertEqual(j["ranks"], ranks)
            self.assertLess(abs(j["parameters"]["total"] - total) / total, 0.01, name)
            if active:
                self.assertLess(abs(j["parameters"]["active_per_token"] - active) / active, 0.01, name)
            text = self.plan(self.config(name)).stdout
            for part in ("mesh  ", "groups", "experts", "schedule", "traffic", "step  ", "free of deadlock"):
                self.assertIn(part, text, name)

    def test_every_mistake_is_found_and_named(self):
        for name, parts in MISTAKES.items():
            for config in (["ranks=8", "mesh.pp=2", "mesh.ep=2", "mesh.dp=4"], [self.config("deepseek_v3_2048")]):
                r = self.plan(*config, f"--seeded-mistake={name}")
                self.assertEqual(r.returncode, 3, f"{name}: {r.stdout}{r.stderr}")
                for part in parts:
                    self.assertIn(part, r.stdout, name)
        r = self.plan("ranks=2", "--seeded-mistake=unfused_send_recv")
        self.assertEqual(r.returncode, 2)
        self.assertIn("mesh.pp", r.stderr)
        self.assertEqual(self.plan("ranks=2", "--seeded-mistake=typo").returncode, 2)

    def test_a_hundred_thousand_ranks(self):
        start = time.monotonic()
        r = self.plan(self.config("deepseek_v3_2048"), "ranks=102400", "mesh.dp=6400", "train.global_batch=102400")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("free of deadlock: 102400 ranks", r.stdout)
        self.assertLess(time.monotonic() - start, 60)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 4 << 20)   # KiB: of the largest child

    def test_picture_and_bad_input(self):
        svg = os.path.join(self.dir, "plan.svg")
        self.assertEqual(self.plan("ranks=4", "mesh.pp=4", f"--svg={svg}").returncode, 0)
        with open(svg) as f:
            self.assertIn("</svg>", f.read())
        even, uneven = (json.loads(self.plan("ranks=4", "mesh.ep=4", "--json", *more).stdout) for more in ((), ("--imbalance=1.5",)))
        self.assertEqual((even["imbalance"], uneven["imbalance"]), (1, 1.5))
        self.assertGreater(uneven["step_seconds"], even["step_seconds"])
        self.assertIn("1.5 times as many tokens to the busiest rank", self.plan("ranks=4", "mesh.ep=4", "--imbalance=1.5").stdout)
        for words, parts in ((["ranks=6", "mesh.pp=4"], ["mesh.pp"]), (["ranks=8", "mesh.tp=8"], ["mesh.tp"]), (["no_such_file.textproto"], ["no_such_file"]), (["--gflops=-1"], ["--gflops"]), (["ranks=2", "ranks"], ["ranks"])):
            r = self.plan(*words)
            self.assertEqual(r.returncode, 2, words)
            for part in parts:
                self.assertIn(part, r.stderr, words)


if __name__ == "__main__":
    unittest.main()
