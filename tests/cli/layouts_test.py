"""Layouts as processes over UCX and as threads: the same numbers as one rank; what a layout cannot be is refused in words."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from tests.cli.harness import CliTest

SMALL = ["model.num_layers=4", "model.d_model=32", "model.num_heads=4", "model.num_kv_heads=4", "model.num_global_experts=4", "optimizer.kind=sgd", "optimizer.lr=0.05", "steps=5", "log.every=5",
         "train.seq_len=16", "gate.z_loss_coef=0.01"]
LAYOUTS = {
    "dp2ep2": "ranks=2 mesh.ep=2",
    "dp2": "ranks=2 mesh.ep=1",
    "tp2": "ranks=2 mesh.tp=2 mesh.ep=1",
    "tp2ep2": "ranks=2 mesh.tp=2 mesh.ep=2",
    "cp2": "ranks=2 mesh.cp=2 mesh.ep=2",
    "etp2": "ranks=2 mesh.etp=2 mesh.ep=1",
    "pp2": "ranks=2 mesh.pp=2",
    "pp2gpipe": "ranks=2 mesh.pp=2 pipeline.kind=gpipe train.micro_batch=2",
    "pp2interleaved": "ranks=2 mesh.pp=2 pipeline.kind=interleaved train.micro_batch=2",
    "pp2zero": "ranks=2 mesh.pp=2 pipeline.kind=zero_bubble",
    "pp2tied": "ranks=2 mesh.pp=2 mesh.ep=1",
    "pp2dp2ep2": "ranks=4 mesh.pp=2 mesh.ep=2 mesh.dp=2",
    "tp2etp2ep2": "ranks=4 mesh.tp=2 mesh.etp=2 mesh.ep=2",
    "pp2tp2": "ranks=4 mesh.pp=2 mesh.tp=2 mesh.ep=2",
    "tp2cp2": "ranks=4 mesh.tp=2 mesh.cp=2 mesh.ep=4",
    "pp4interleaved": "ranks=4 mesh.pp=4 pipeline.kind=interleaved pipeline.stage_layers=1,0,1,0,0,1,0,1",
}
THREADS = {
    "seed8": "ranks=8 mesh.pp=2 mesh.ep=4 mesh.dp=4",
    "t_pp2tp2cp2": "ranks=8 mesh.pp=2 mesh.tp=2 mesh.cp=2 mesh.ep=2 mesh.etp=2",
    "t_pp4zero": "ranks=4 mesh.pp=4 pipeline.kind=zero_bubble",
}


class LayoutsTest(CliTest):
    def train(self, run, words):
        r = self.run_moe("train", f"run={run}", *SMALL, *words)
        self.assertEqual(r.returncode, 0, f"{run}: {r.stderr}")
        return [m for m in self.metrics(run) if "loss" in m], r

    def same(self, run, got, want):
        self.assertEqual(len(got), len(want), run)
        for a, b in zip(got, want):
            for what in ("loss", "aux_loss", "z_loss", "grad_norm"):
                self.assertLess(abs(a[what] - b[what]), 1e-5 * abs(b[what]), f"{run} {what} of step {b['step']}")
            self.assertEqual(a["expert_count"], b["expert_count"], run)

    def test_processes_and_threads_train_like_one_rank(self):
        # A tied table learns from both ends; at the others' rate its float32 rounding grows past 1e-5 within four steps.
        tied = ["model.tie_embeddings=true", "optimizer.lr=0.01"]
        one, _ = self.train("one", ["ranks=1"])
        one_tied, _ = self.train("one_tied", ["ranks=1", *tied])
        for run, words in LAYOUTS.items():
            extra = tied if "tied" in run else []
            got, _ = self.train(run, words.split() + extra + ["transport=ucx"])
            self.same(run, got, one_tied if extra else one)
        for run, words in THREADS.items():
            got, r = self.train(run, words.split() + ["transport=inproc"])
            self.same(run, got, one)
        self.assertIn("pp 4", r.stdout)
        self.assertIn("zero_bubble, 4 stages", r.stdout)

    def test_a_checkpoint_fits_other_layouts(self):
        self.train("a", "ranks=4 mesh.pp=2 mesh.tp=2 mesh.etp=2 mesh.ep=1".split())
        said = {}
        for name, words in {"same": [], "one": ["ranks=1", "mesh.pp=1", "mesh.tp=1", "mesh.etp=1"], "cp": ["ranks=2", "mesh.pp=1", "mesh.tp=1", "mesh.etp=1", "mesh.cp=2"]}.items():
            e = self.run_moe("eval", "a", *words, tiny=False, data=False)
            self.assertEqual(e.returncode, 0, f"{name}: {e.stderr}")
            g = self.run_moe("generate", "a", "the sea", *words, tiny=False, data=False)
            self.assertEqual(g.returncode, 0, f"{name}: {g.stderr}")
            loss = [w for w in e.stdout.replace(",", " ").split() if w.count(".") == 1 and w.replace(".", "").isdigit()][0]
            said[name] = (loss, g.stdout)
        self.assertEqual(said["same"], said["one"])
        self.assertEqual(said["same"], said["cp"])

    def test_what_cannot_be_is_refused_in_words(self):
        cases = [
            ("ranks=6 mesh.pp=4", ["mesh.pp", "4", "nearest", "3 or 6"]),
            ("ranks=8 mesh.tp=8", ["mesh.tp", "8", "model.num_kv_heads"]),
            ("ranks=2 mesh.cp=2 train.seq_len=18", ["train.seq_len", "18", "mesh.cp", "16 or 20"]),
            ("ranks=8 mesh.pp=8", ["mesh.pp", "8", "model.num_layers", "mesh.pp=4"]),
            ("ranks=2 mesh.pp=2 pipeline.virtual_stages=3 pipeline.kind=interleaved", ["virtual_stages", "model.num_layers"]),
            ("ranks=2 mesh.pp=2 pipeline.virtual_stages=2", ["pipeline.virtual_stages", "interleaved"]),
            ("ranks=2 mesh.etp=2 mesh.ep=1 model.d_hidden=15", ["model.d_hidden", "15", "mesh.etp", "14 or 16"]),
            ("ranks=2 mesh.pp=2 pipeline.stage_layers=1,2", ["pipeline.stage_layers", "1,2", "4"]),
            ("ranks=2 mesh.pp=2 pipeline.kind=fast", ["pipeline.kind", "fast", "1f1b"]),
            ("ranks=1 model.attention=mla", ["model.attention", "mla"]),
        ]
        for words, parts in cases:
            r = self.run_moe("train", "run=no", *SMALL, *words.split())
            self.assertNotEqual(r.returncode, 0, words)
            lines = [l for l in r.stderr.splitlines() if l.startswith("moe: ") and not l.startswith("moe: warning")]
            self.assertTrue(lines, words)
            for part in parts:
                self.assertIn(part, r.stderr, words)
            self.assertFalse(os.path.exists(os.path.join(self.dir, "runs/no")), words)

    def test_few_micro_batches_work_with_a_warning(self):
        _, r = self.train("few", "ranks=4 mesh.pp=4 train.global_batch=2 train.micro_batch=1 transport=inproc".split())
        self.assertIn("micro-batches", r.stderr)
        self.assertIn("mesh.pp", r.stderr)


if __name__ == "__main__":
    unittest.main()
