"""Bad input: one clear error (field, value, remedy), exit code 2 for misuse and 1 for failure, nothing half-written."""
import json
import os
import resource
import shutil
import signal
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from tests.cli.harness import CliTest


class MisuseTest(CliTest):
    def test_fields(self):
        for words, parts in (
                (["model.d_modle=4"], ["model.d_modle", "model.d_model"]),
                (["model.top_k=9"], ["model.top_k is 9", "num_global_experts"]),
                (["model.top_k=0"], ["model.top_k", "0", "1"]),
                (["model.top_k=two"], ["model.top_k", "two", "integer"]),
                (["model.num_heads=3"], ["model.num_heads", "3"]),
                (["model.num_kv_heads=3"], ["model.num_kv_heads", "3"]),
                (["model.num_global_experts=7", "mesh.ep=2"], ["model.num_global_experts", "7", "mesh.ep"]),
                (["ranks=4", "mesh.dp=3"], ["mesh.dp", "3", "4"]),
                (["ranks=3", "mesh.ep=2"], ["mesh.ep", "2", "3"]),
                (["mesh.pp=3"], ["mesh.pp", "3", "ranks"]),
                (["mesh.tp=2"], ["mesh.tp", "2", "num_kv_heads", "1"]),
                (["mesh.cp=2", "train.seq_len=30"], ["train.seq_len", "30", "28 or 32"]),
                (["ranks=4", "mesh.pp=4"], ["mesh.pp", "4", "model.num_layers", "2"]),
                (["mesh.etp=2", "model.d_hidden=15"], ["mesh.etp", "2", "model.d_hidden", "15"]),
                (["gate=guess"], ["gate.kind", "guess", "mixtral"]),
                (["transport=smoke"], ["transport.kind", "smoke", "ucx"]),
                (["model.vocab_size=100"], ["model.vocab_size", "100", "256"]),
                (["transport.ucx_library=/nowhere/libucp.so"], ["/nowhere/libucp.so", "libucx0", "transport=inproc"]),
        ):
            with self.subTest(words):
                self.refused(self.run_moe("train", "run=x", "steps=2", *words), 2, *parts)

    def test_configuration_files(self):
        path = os.path.join(self.dir, "c.textproto")
        with open(path, "w") as f:
            f.write("steps: 2\nmodel { d_modle: 3 }\n")
        self.refused(self.run_moe("train", path), 2, "c.textproto", "d_modle")
        self.refused(self.run_moe("train", "/nowhere.textproto"), 2, "/nowhere.textproto")
        with open(path, "w") as f:
            json.dump({"steps": 2, "run": "fromjson", "model": {"top_k": 1}}, f)
        self.assertEqual(self.run_moe("train", path).returncode, 0)
        self.assertEqual(len(self.losses("fromjson")), 2)

    def test_data(self):
        short, empty = os.path.join(self.dir, "short"), os.path.join(self.dir, "empty")
        open(short, "w").write("x" * 40)
        open(empty, "w").close()
        for path, parts in (("/nowhere", ["data.path", "/nowhere"]), (empty, ["data.path", "empty"]), (short, ["data.path", "train.seq_len"]), (self.dir, ["data.path", "not a file"])):
            with self.subTest(path):
                self.refused(self.run_moe("train", "run=x", f"data.path={path}", data=False), 2, *parts)
        self.assertFalse(os.path.exists(os.path.join(self.dir, "runs")))                     # nothing was begun

    def test_run_folders(self):
        self.assertEqual(self.run_moe("train", "run=a", "steps=2").returncode, 0)
        self.refused(self.run_moe("train", "run=a", "steps=2"), 2, "'a'", "resume=true")
        self.refused(self.run_moe("train", "run=b", "steps=2", "resume=true"), 2, "'b'", "no checkpoint")
        open(os.path.join(self.dir, "file"), "w").close()
        self.refused(self.run_moe("train", "run=a", "run_root=file/x"), 2, "run_root", "file/x")
        self.refused(self.run_moe("eval", "nosuch"), 2, "nosuch")
        self.refused(self.run_moe("generate"), 2, "name of a run")

    def test_commands(self):
        for words, parts in ((["fly"], ["fly"]), (["train", "--fast"], ["--fast"]), (["bench", "everything"], ["layer", "train"])):
            self.refused(self.run_moe(*words, tiny=False, data=False), 2, *parts)
        h = self.run_moe("train", "--help", tiny=False, data=False)
        self.assertEqual(h.returncode, 0)
        for part in ("model.top_k=2", "Experts that each token goes to.", "transport.kind=ucx", "ucx,inproc", "data.val_fraction=0.05"):
            self.assertIn(part, h.stdout)
        self.assertEqual(self.run_moe("--help", tiny=False, data=False).returncode, 0)
        self.assertEqual(self.run_moe(tiny=False, data=False).returncode, 2)
        i = self.run_moe("info", tiny=False, data=False)
        self.assertEqual(i.returncode, 0, i.stderr)
        for part in ("kernels", "ucx", "cuda", "mixtral", "shared memory"):
            self.assertIn(part, i.stdout)

    def test_disk_full_during_a_save_keeps_the_last_good_one(self):
        self.assertEqual(self.run_moe("train", "run=a", "steps=2", "ranks=1").returncode, 0)
        size = os.path.getsize(os.path.join(self.dir, "runs/a/checkpoints/step-00000002/shard-00000.safetensors"))

        def limit():                                                # a write beyond half a shard fails as on a full disk
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        r = self.run_moe("train", "run=a", "steps=4", "ranks=1", "resume=true", preexec=limit)
        self.refused(r, 1, "shard-00000.safetensors", "earlier checkpoints are untouched")
        self.assertEqual(self.checkpoints("a"), ["step-00000002"])
        self.assertEqual(self.run_moe("train", "run=a", "steps=4", "ranks=1", "resume=true").returncode, 0)

    def test_damaged_checkpoints(self):
        self.assertEqual(self.run_moe("train", "run=a", "steps=2").returncode, 0)
        folder = os.path.join(self.dir, "runs/a/checkpoints/step-00000002")
        shard = os.path.join(folder, "shard-00001.safetensors")
        good = open(shard, "rb").read()
        for damage, parts in ((good[:-5], ["shard-00001.safetensors"]), (good[:-1] + bytes([good[-1] ^ 1]), ["shard-00001.safetensors", "altered"])):
            open(shard, "wb").write(damage)
            self.refused(self.run_moe("train", "run=a", "steps=4", "resume=true"), 1, *parts)
        open(shard, "wb").write(good)
        os.rename(shard, shard + ".away")
        self.refused(self.run_moe("train", "run=a", "steps=4", "resume=true"), 1, "shard-00001.safetensors")
        os.rename(shard + ".away", shard)
        self.refused(self.run_moe("train", "run=a", "steps=4", "resume=true", "model.num_global_experts=4"), 1, "moe.gate.weight", "step-00000002")
        self.assertEqual(self.run_moe("train", "run=a", "steps=4", "resume=true").returncode, 0)

    def test_port_taken(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            r = self.run_moe("train", "run=x", f"transport.port={port}", "transport.timeout_s=3")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn(str(port), r.stderr)
        self.assertIn("transport.port", r.stderr)

    def test_a_rank_that_never_arrives_is_named(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1] - 1
        ranks = []
        for r in (0, 2):
            env = {"RANK": str(r), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            ranks.append(self.start_moe("train", "run=late", "steps=2", "mesh.ep=1", "transport.timeout_s=2", env=env))
        for p in ranks:
            code, error = self.finish(p)
            self.assertEqual(code, 1, error)
            self.assertRegex(error, r"(missing|did not).*\b1\b|\b1\b.*(missing|did not)")


if __name__ == "__main__":
    unittest.main()
