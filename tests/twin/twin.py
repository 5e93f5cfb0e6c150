"""The twin: the engine's model in plain PyTorch, as short as it can be said.

Decoder-only transformer: RMSNorm, rotary positions, grouped-query causal attention, SwiGLU experts behind a softmax
top-k router (renormalised), untied head, cross-entropy + balancing loss + z loss, AdamW with clipping, warm-up and
cosine. Parameters are a dictionary under the engine's global names.
"""
import math

import torch
import torch.nn.functional as F


class Twin:
    def __init__(self, params, layers, heads, kv_heads, experts, top_k, rope_theta=10000.0, eps=1e-5,
                 aux_coef=0.01, z_coef=0.001):
        self.p = {k: v.clone().requires_grad_() for k, v in params.items()}
        self.layers, self.heads, self.kv, self.E, self.K = layers, heads, kv_heads, experts, top_k
        self.theta, self.eps, self.aux_coef, self.z_coef = rope_theta, eps, aux_coef, z_coef

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.p[name + ".weight"]

    def rotate(self, x):                                     # [B, heads, S, h]
        half = x.shape[-1] // 2
        freq = self.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * freq
        c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        u, v = x[..., :half], x[..., half:]
        return torch.cat([u * c - v * s, v * c + u * s], -1)

    def attention(self, x, n):
        B, S, D = x.shape
        w = lambda m: self.p[f"layers.{n}.attention.{m}.weight"]
        split = lambda t, h: t.view(B, S, h, -1).transpose(1, 2)
        q = self.rotate(split(x @ w("q").T, self.heads))
        k = self.rotate(split(x @ w("k").T, self.kv)).repeat_interleave(self.heads // self.kv, 1)
        v = split(x @ w("v").T, self.kv).repeat_interleave(self.heads // self.kv, 1)
        score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        score = score.masked_fill(torch.ones(S, S).triu(1).bool(), float("-inf"))
        return (score.softmax(-1) @ v).transpose(1, 2).reshape(B, S, -1) @ w("o").T

    def moe(self, x, n, losses):
        flat = x.reshape(-1, x.shape[-1])
        logits = flat @ self.p[f"layers.{n}.moe.gate.weight"].T
        prob = logits.softmax(-1)
        top, ids = prob.topk(self.K, -1)
        weight = top / top.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e in range(self.E):
            token, slot = (ids == e).nonzero(as_tuple=True)
            w1, w2, w3 = (self.p[f"layers.{n}.moe.experts.{e}.w{i}.weight"] for i in (1, 2, 3))
            h = flat[token]
            out = out.index_add(0, token, (F.silu(h @ w1.T) * (h @ w3.T)) @ w2.T * weight[token, slot, None])
        T = flat.shape[0]
        count = torch.bincount(ids.reshape(-1), minlength=self.E).to(prob.dtype)
        losses["aux"] += self.E / (self.K * T * T) * (count * prob.sum(0)).sum() / self.layers
        losses["z"] += logits.logsumexp(-1).pow(2).mean() / self.layers
        return out.view_as(x)

    def forward(self, ids, labels):
        """Returns total, cross-entropy, aux, z. labels: token after each position, negative = ignored."""
        losses = {"aux": 0.0, "z": 0.0}
        x = self.p["embedding.weight"][ids]
        for n in range(self.layers):
            x = x + self.attention(self.norm(x, f"layers.{n}.attention_norm"), n)
            x = x + self.moe(self.norm(x, f"layers.{n}.ffn_norm"), n, losses)
        logits = self.norm(x, "norm") @ self.p["head.weight"].T
        keep = labels.reshape(-1) >= 0
        ce = F.cross_entropy(logits.reshape(-1, logits.shape[-1])[keep], labels.reshape(-1)[keep])
        return ce + self.aux_coef * losses["aux"] + self.z_coef * losses["z"], ce, losses["aux"], losses["z"]

    def optimizer(self, lr, decay=0.1, betas=(0.9, 0.95)):
        groups = [{"params": [v for v in self.p.values() if v.dim() > 1], "weight_decay": decay},
                  {"params": [v for v in self.p.values() if v.dim() == 1], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=1e-8)


def learning_rate(peak, warmup, total, step, floor=0.1):
    if step < warmup:
        return peak * (step + 1) / warmup
    first = max(warmup - 1, 0)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - first) / (total - 1 - first)))))
