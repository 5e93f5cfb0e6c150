"""The engine against its PyTorch twin: same initial weights, same batches.

Losses of 20 AdamW steps to 1e-5 relative, every gradient of the first step to 1e-4, parameters afterwards.
"""
import os
import sys
import unittest

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from tests.lib.moe_ctypes import Library, Model
from tests.twin.twin import Twin, learning_rate

STEPS, WARMUP, LR, BATCH, SEQ, VOCAB = 20, 5, 3e-3, 5, 33, 61
SHAPE = dict(layers=3, heads=6, kv_heads=2, experts=5, top_k=2)
FIELDS = {"model.vocab_size": VOCAB, "model.num_layers": SHAPE["layers"], "model.d_model": 48, "model.num_heads": SHAPE["heads"],
          "model.num_kv_heads": SHAPE["kv_heads"], "model.num_global_experts": SHAPE["experts"], "model.top_k": SHAPE["top_k"],
          "model.d_hidden": 40, "train.seq_len": SEQ, "train.global_batch": BATCH, "steps": STEPS, "optimizer.lr": LR,
          "optimizer.warmup_steps": WARMUP, "optimizer.decay_steps": STEPS, "optimizer.weight_decay": 0.1, "optimizer.clip_norm": 1, "gate.aux_loss_coef": 0.01,
          "gate.z_loss_coef": 0.001, "ranks": 1, "threads": 2, "seed": 5}


def batches():
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.full(VOCAB, 0.1), VOCAB)         # something to learn: a Markov chain
    for _ in range(STEPS):
        text = np.zeros((BATCH, SEQ + 1), np.int32)
        for b in range(BATCH):
            text[b, 0] = rng.integers(VOCAB)
            for s in range(SEQ):
                text[b, s + 1] = rng.choice(VOCAB, p=table[text[b, s]])
        labels = text[:, 1:].copy()
        labels[0, :3] = -100
        yield np.ascontiguousarray(text[:, :-1]), labels


class TwinTest(unittest.TestCase):
    def compare(self, extra, loss_tolerance, grad_tolerance, param_tolerance):
        torch.set_num_threads(2)
        ours = Model(Library(), {**FIELDS, **extra})
        mine = ours.parameters()
        # Routers start almost uniform; spread, so that no choice of experts hangs on the last bit.
        for name, (value, _) in mine.items():
            if name.endswith("gate.weight"):
                value *= 10
        twin = Twin({k: torch.from_numpy(v.copy()) for k, (v, _) in mine.items()}, **SHAPE)
        opt = twin.optimizer(LR)
        for step, (ids, labels) in enumerate(batches()):
            for g in opt.param_groups:
                g["lr"] = learning_rate(LR, WARMUP, STEPS, step)
            opt.zero_grad()
            total, ce, aux, z = twin.forward(torch.from_numpy(ids).long(), torch.from_numpy(labels).long())
            total.backward()
            s = ours.step(ids, labels, update=False)
            for name, a, b in (("loss", s.loss, ce), ("aux", s.aux_loss, aux), ("z", s.z_loss, z), ("total", s.total_loss, total)):
                self.assertLess(abs(a - b.item()) / abs(b.item()), loss_tolerance, f"{name} at step {step}: {a} against {b.item()}")
            if step == 0:
                first = s.loss
                for name, (_, grad) in mine.items():
                    want = twin.p[name].grad.numpy()
                    error = np.abs(grad - want).max() / max(np.abs(want).max(), 1e-12)
                    self.assertLess(error, grad_tolerance, f"gradient of {name}")
            norm = torch.nn.utils.clip_grad_norm_(list(twin.p.values()), 1.0).item()
            opt.step()
            ours.update(s)
            self.assertLess(abs(s.grad_norm - norm) / norm, 10 * loss_tolerance, f"norm at step {step}")
        self.assertLess(s.loss, first - 0.05)                  # it learns
        for name, (value, _) in mine.items():
            want = twin.p[name].detach().numpy()
            self.assertLess(np.abs(value - want).max() / np.abs(want).max(), param_tolerance, f"parameter {name}")
        ours.close()

    def test_float64_is_the_same_mathematics(self):
        # PyTorch 1.13 keeps AdamW's decay and bias corrections in double as well: nothing but rounding is left.
        self.compare({"model.dtype": "float64", "device": "reference"}, 1e-10, 1e-9, 1e-7)

    def test_float32_on_the_cpu_device(self):
        self.compare({}, 1e-5, 1e-4, 2e-3)


if __name__ == "__main__":
    unittest.main()
