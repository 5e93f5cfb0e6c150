"""moe train as a user sees it: runs, layouts, resume, Ctrl-C, killed ranks."""
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from tests.cli.harness import CliTest


class TrainTest(CliTest):
    def test_a_run_leaves_what_it_promises(self):
        r = self.run_moe("train", "run=a", "steps=6", "checkpoint.every=2", "eval.every=3", "log.every=2")
        self.assertEqual(r.returncode, 0, r.stderr)
        for part in ("experts                8 in each MoE layer, 4 on this rank", "parameters, global", "memory, this rank", "rank 1: ", "step 6/6", "tokens/s", "load max/mean",
                     "held-out loss", "sample (temperature", "checkpoint: runs/a/checkpoints/step-00000006", "resume=true"):
            self.assertIn(part, r.stdout)
        self.assertEqual(self.checkpoints("a"), ["step-00000004", "step-00000006"])          # keep = 2
        m = self.metrics("a")
        steps = [x for x in m if "loss" in x]
        self.assertEqual([x["step"] for x in steps], list(range(6)))
        for x in steps:
            self.assertEqual(set(x), {"step", "loss", "aux_loss", "z_loss", "grad_norm", "lr", "tokens", "tokens_per_s", "dropped_routes", "expert_count"})
            self.assertEqual(x["tokens"], 8 * 32)
            self.assertEqual([sum(layer) for layer in x["expert_count"]], [2 * 8 * 32] * 2)
        self.assertEqual([x["step"] for x in m if "val_loss" in x], [3, 6])
        config = open(os.path.join(self.dir, "runs/a/config.textproto")).read()
        for part in ("top_k: 2", "d_model: 16", "warmup_steps: 5", "val_fraction"):
            self.assertIn(part, config)
        self.assertIn("</svg>", open(os.path.join(self.dir, "runs/a/loss.svg")).read())
        self.assertEqual(os.readlink(os.path.join(self.dir, "runs/last")), "a")
        e = self.run_moe("eval", "a", tiny=False, data=False)
        self.assertEqual(e.returncode, 0, e.stderr)
        val = [x["val_loss"] for x in m if "val_loss" in x][-1]
        self.assertIn(f"{val:.4f}", e.stdout)
        g = self.run_moe("generate", "a", "the sea", tiny=False, data=False)
        self.assertEqual(g.returncode, 0, g.stderr)
        self.assertTrue(g.stdout.startswith("the sea"))
        self.assertEqual(len(g.stdout), len("the sea") + 8 + 1)

    def test_layouts_agree_and_transports_are_the_same_bits(self):
        for run, words in (("one", ["ranks=1"]), ("four", ["ranks=4"]), ("threads", ["ranks=4", "transport=inproc"]), ("micro", ["ranks=2", "train.micro_batch=1"]), ("ep2", ["ranks=4", "mesh.ep=2"])):
            r = self.run_moe("train", f"run={run}", "steps=8", *words)
            self.assertEqual(r.returncode, 0, r.stderr)
        one = self.losses("one")
        for run in ("four", "micro", "ep2"):
            for a, b in zip(one, self.losses(run)):
                self.assertLess(abs(a - b) / a, 1e-5, run)
        strip = lambda run: [{k: v for k, v in m.items() if k != "tokens_per_s"} for m in self.metrics(run)]
        self.assertEqual(strip("four"), strip("threads"))

    def test_resume_is_the_same_bits_as_never_stopping(self):
        self.assertEqual(self.run_moe("train", "run=d", "steps=10").returncode, 0)
        self.assertEqual(self.run_moe("train", "run=e", "steps=4").returncode, 0)
        self.assertEqual(self.run_moe("train", "run=e", "steps=10", "resume=true").returncode, 0)
        self.assertEqual(self.losses("d"), self.losses("e"))
        for shard in os.listdir(os.path.join(self.dir, "runs/d/checkpoints/step-00000010")):
            if shard == "manifest.json":
                continue                                             # names the run
            read = lambda run: open(os.path.join(self.dir, f"runs/{run}/checkpoints/step-00000010", shard), "rb").read()
            self.assertEqual(read("d"), read("e"), shard)

    def test_ctrl_c_saves_and_resume_goes_on(self):
        for transport in ("ucx", "inproc"):
            run = "c_" + transport
            p = self.start_moe("train", f"run={run}", "steps=100000", "log.every=1", f"transport={transport}")
            self.wait_for(p, "step 3/")
            children = self.ranks_of(p) if transport == "ucx" else []
            p.send_signal(signal.SIGINT)
            code, error = self.finish(p)
            self.assertEqual(code, 130, error)
            self.gone(children)
            done = len(self.losses(run))
            self.assertEqual(self.checkpoints(run), [f"step-{done:08d}"])
            self.assertIn("resume=true", "".join(p.lines))
            more = self.run_moe("train", f"run={run}", f"steps={done + 2}", "resume=true", f"transport={transport}")
            self.assertEqual(more.returncode, 0, more.stderr)
            self.assertEqual(len(self.losses(run)), done + 2)

    def test_a_second_ctrl_c_ends_at_once(self):
        # The held-out evaluation at the end of this run takes long: the first signal is not looked at in it.
        p = self.start_moe("train", "run=twice", "steps=1", "log.every=1", "generate.tokens=1000000")
        self.wait_for(p, "held-out loss")
        children = self.ranks_of(p)
        p.send_signal(signal.SIGINT)
        p.send_signal(signal.SIGTERM)
        code, error = self.finish(p)
        self.assertEqual(code, 130, error)
        self.gone(children)

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        for rank in (0, 1, 2):
            p = self.start_moe("train", f"run=k{rank}", "ranks=3", "mesh.ep=1", "steps=100000", "log.every=1")
            self.wait_for(p, "step 2/")
            children = self.ranks_of(p)
            os.kill(children[rank], signal.SIGKILL)
            code, error = self.finish(p)
            self.assertEqual(code, 1, error)
            self.assertIn(f"rank {rank} was killed by signal 9", error)
            self.gone(children)

    def test_no_orphan_when_the_parent_is_killed(self):
        p = self.start_moe("train", "run=o", "steps=100000", "log.every=1")
        self.wait_for(p, "step 2/")
        children = self.ranks_of(p)
        p.kill()
        self.finish(p)
        self.gone(children)

    def test_torchrun_and_mpirun_environments(self):
        import socket
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1] - 1
        ranks = []
        for r in range(2):
            env = {"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            ranks.append(self.start_moe("train", "run=torch", "steps=3", env=env))
        for p in ranks:
            code, error = self.finish(p)
            self.assertEqual(code, 0, error)
        self.assertEqual(self.run_moe("train", "run=own", "steps=3").returncode, 0)
        self.assertEqual(self.losses("torch"), self.losses("own"))
        wrong = self.run_moe("train", "run=w", "ranks=3", env={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"})
        self.refused(wrong, 2, "ranks is 3", "2")


if __name__ == "__main__":
    unittest.main()
