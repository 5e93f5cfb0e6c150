"""Running the program as a user does, with a model that is small enough for a test."""
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

TINY = ["model.d_model=16", "model.num_layers=2", "model.d_hidden=16", "model.num_heads=2", "model.num_kv_heads=1", "train.seq_len=32",
        "train.global_batch=8", "eval.sequences=4", "eval.final_sequences=4", "generate.tokens=8", "optimizer.warmup_steps=5", "threads=1"]
LIMIT = 60  # seconds: whatever takes longer hangs


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.dir = self.folder.name
        self.program = os.path.abspath(os.environ["MOE_PROGRAM"])
        self.text = os.path.join(self.dir, "text.txt")
        with open(self.text, "w") as f:
            f.write("".join(f"the {a} of {b} and the {b} of {a}; " for a in ("sea", "land", "day", "night", "fire") for b in ("king", "lamb", "house", "tree") for _ in range(20)))

    def tearDown(self):
        self.folder.cleanup()

    def command(self, *words, tiny=True, data=True):
        extra = (TINY if tiny else []) + ([f"data.path={self.text}"] if data else [])
        return [self.program, *words[:1], *extra, *words[1:]]   # the test's own fields come last and win

    def environment(self, extra=None):
        env = {"PATH": os.environ.get("PATH", ""), "HOME": self.dir}
        env.update(extra or {})
        return env

    def run_moe(self, *words, tiny=True, data=True, env=None, preexec=None, cwd=None):
        return subprocess.run(self.command(*words, tiny=tiny, data=data), cwd=cwd or self.dir, env=self.environment(env), capture_output=True, text=True,
                              timeout=LIMIT, preexec_fn=preexec)

    def start_moe(self, *words, env=None):
        """A run in the background; its output is read as it comes (self.lines)."""
        p = subprocess.Popen(self.command(*words), cwd=self.dir, env=self.environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        p.lines = []
        p.seen = threading.Condition()

        def pump():
            for line in p.stdout:
                with p.seen:
                    p.lines.append(line)
                    p.seen.notify_all()
        p.pump = threading.Thread(target=pump, daemon=True)
        p.pump.start()
        return p

    def wait_for(self, p, text):
        with p.seen:
            ok = p.seen.wait_for(lambda: any(text in l for l in p.lines), LIMIT)
        self.assertTrue(ok, f"'{text}' never came: {p.lines}")

    def finish(self, p):
        code = p.wait(LIMIT)
        p.pump.join(LIMIT)
        error = p.stderr.read()
        p.stderr.close()
        p.stdout.close()
        return code, error

    def ranks_of(self, p):
        """Process ids of the children, in order of rank."""
        with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
            pids = [int(x) for x in f.read().split()]

        def rank(pid):
            with open(f"/proc/{pid}/cmdline") as f:
                word = [w for w in f.read().split("\0") if w.startswith("--internal-rank=")][0]
            return int(word.split("=")[1].split(",")[0])
        return sorted(pids, key=rank)

    def gone(self, pids):
        deadline = time.monotonic() + 10
        left = list(pids)

        def alive(pid):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    return f.read().rsplit(")", 1)[1].split()[0] != "Z"
            except (FileNotFoundError, ProcessLookupError):
                return False
        while left and time.monotonic() < deadline:
            left = [p for p in left if alive(p)]
        self.assertEqual(left, [], "orphans")

    def metrics(self, run):
        with open(os.path.join(self.dir, "runs", run, "metrics.jsonl")) as f:
            return [json.loads(l) for l in f]

    def losses(self, run):
        return [m["loss"] for m in self.metrics(run) if "loss" in m]

    def checkpoints(self, run):
        return sorted(os.listdir(os.path.join(self.dir, "runs", run, "checkpoints")))

    def refused(self, result, code, *parts):
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        lines = [l for l in result.stderr.splitlines() if l.startswith("moe: ") and not l.startswith("moe: warning")]
        self.assertEqual(len(lines), 1, f"one error, once: {result.stderr}")
        for part in parts:
            self.assertIn(part, lines[0])


SIGNALS = (signal.SIGINT, signal.SIGTERM)
