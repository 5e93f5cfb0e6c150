#!/usr/bin/env python3
"""Writes layer/NAME.safetensors and layer/NAME.json: one MoE layer per gate family, float64, no model around it.

    make_layer_golden.py [OUT_DIR]

Loops over tokens, choices and experts, so that every rule can be read off; gradients by autograd and confirmed by finite
differences. Inputs are rounded to float32 before use, so a float32 implementation starts from the same numbers.
Shapes: T tokens, D model, F hidden, E experts, K choices, C capacity. README.md says what each name means.
"""
import argparse
import json
import math
import pathlib

import torch
from safetensors.torch import save_file

D, F = 12, 10
BASE = {"E": 8, "K": 2, "expert": "swiglu", "score": "softmax", "order": "score_then_topk", "renorm": "none", "eps": 0.0,
        "scale": 1.0, "groups": 1, "keep_groups": 1, "group_top": 1, "capacity_factor": None, "policy": None,
        "capacity_scope": "global", "tokens_per_rank": [17, 3, 0], "aux": ["switch", "z"]}
# Cases that name the same "data" share one seed: the same tokens and weights under another rule.
CASES = {
    "mixtral": {"renorm": "before_drop", "aux": ["switch", "hf", "z"]},
    "mixtral_masked": {"renorm": "before_drop", "tokens_per_rank": [5, 4, 9], "invalid": [2, 5, 6, 7, 17], "aux": ["switch", "hf", "z"]},
    "mixtral_collapse": {"renorm": "before_drop", "router_bias": [0, 30, 0, 0, 0, 30, 0, 0], "aux": ["switch", "hf", "z"]},
    "olmoe": {"K": 4, "tokens_per_rank": [0, 13, 8], "aux": ["switch", "hf", "z"]},
    "qwen2_shared": {"E": 6, "K": 2, "shared": True, "tokens_per_rank": [1, 0, 10]},
    "deepseek_v2": {"K": 3, "groups": 4, "keep_groups": 2, "group_top": 1, "scale": 4.0, "tokens_per_rank": [6, 6, 7]},
    "deepseek_v3": {"K": 3, "score": "sigmoid", "select_bias": True, "groups": 4, "keep_groups": 2, "group_top": 2,
                    "renorm": "before_drop", "eps": 1e-20, "scale": 2.5, "tokens_per_rank": [12, 8, 0], "sequence": 4,
                    "aux": ["sequence", "z"]},
    "megatron_group": {"K": 4, "groups": 4, "keep_groups": 2, "group_top": 2, "tokens_per_rank": [2, 0, 14]},
    "gpt_oss": {"E": 6, "K": 3, "order": "topk_then_softmax", "router_bias": True, "tokens_per_rank": [5, 0, 16], "aux": ["hf", "z"]},
    "noisy_topk": {"order": "topk_then_softmax", "noise": True, "tokens_per_rank": [8, 8, 2], "aux": []},
    "switch": {"data": "switch", "K": 1, "expert": "relu", "capacity_factor": 1.0, "policy": "position"},
    "switch_per_rank": {"data": "switch", "K": 1, "expert": "relu", "capacity_factor": 1.0, "policy": "position", "capacity_scope": "per_rank"},
    "switch_probability": {"data": "switch", "K": 1, "expert": "relu", "capacity_factor": 1.0, "policy": "probability"},
    "gshard": {"data": "gshard", "expert": "gelu", "renorm": "before_drop", "capacity_factor": 1.0, "policy": "position", "aux": ["gshard", "switch", "z"]},
    "gshard_renorm_after": {"data": "gshard", "expert": "gelu", "renorm": "after_drop", "capacity_factor": 1.0, "policy": "position",
                            "aux": ["gshard", "switch", "z"]},
    "gshard_probability": {"data": "gshard", "expert": "gelu", "renorm": "before_drop", "capacity_factor": 1.0, "policy": "probability",
                           "aux": ["gshard", "z"]},
    "expert_choice": {"E": 5, "order": "expert_choice", "capacity_factor": 2.0, "expert": "gelu", "tokens_per_rank": [11, 0, 9], "aux": ["z"]},
}


def inputs(spec, seed):
    g = torch.Generator().manual_seed(seed)
    t, e = sum(spec["tokens_per_rank"]), spec["E"]
    n = lambda *shape, s=1.0: (s * torch.randn(shape, generator=g)).float().double()
    v = {"x_TD": n(t, D), "router_ED": n(e, D, s=1.5 / math.sqrt(D)), "w1_EFD": n(e, F, D, s=D ** -0.5),
         "w2_EDF": n(e, D, F, s=F ** -0.5), "dy_TD": n(t, D)}
    if spec["expert"] == "swiglu":
        v["w3_EFD"] = n(e, F, D, s=D ** -0.5)
    if spec.get("router_bias"):
        b = spec["router_bias"]
        v["router_bias_E"] = torch.tensor(b, dtype=torch.float64) if isinstance(b, list) else n(e, s=0.5)
    if spec.get("select_bias"):
        v["select_bias_E"] = n(e, s=0.2)
    if spec.get("noise"):
        v |= {"noise_TE": n(t, e), "noise_router_ED": n(e, D, s=D ** -0.5)}
    if spec.get("shared"):
        v |= {"shared_w1_FD": n(F, D, s=D ** -0.5), "shared_w3_FD": n(F, D, s=D ** -0.5),
              "shared_w2_DF": n(D, F, s=F ** -0.5), "shared_gate_D": n(D, s=D ** -0.5)}
    return v


FIXED = {"dy_TD", "noise_TE", "select_bias_E"}  # no gradient with respect to these


def mlp(kind, x, w1, w2, w3=None):
    h = w1 @ x
    if kind == "swiglu":
        h = h * torch.sigmoid(h) * (w3 @ x)
    elif kind == "relu":
        h = torch.clamp(h, min=0)
    else:
        h = 0.5 * h * (1 + torch.erf(h / math.sqrt(2)))
    return w2 @ h


def top(values, k):
    """Indices of the k largest, descending, ties to the lower index."""
    return sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]


def choose(spec, l, select_bias=None):
    """One token's logits [E] -> chosen ids, their weights before any drop, and the scores [E]."""
    e, k = spec["E"], spec["K"]
    if spec["order"] == "topk_then_softmax":
        ids = top(l.tolist(), k)
        return ids, torch.softmax(l[ids], 0), torch.softmax(l, 0)
    s = torch.softmax(l, 0) if spec["score"] == "softmax" else torch.sigmoid(l)
    c = (s if select_bias is None else s + select_bias).tolist()
    size = e // spec["groups"]
    members = [c[j * size:(j + 1) * size] for j in range(spec["groups"])]
    kept = top([sum(sorted(m)[-spec["group_top"]:]) for m in members], spec["keep_groups"])
    ids = top([c[i] if i // size in kept else -math.inf for i in range(e)], k)
    w = s[ids]
    if spec["renorm"] == "before_drop":
        w = w / (w.sum() + spec["eps"])
    return ids, w * spec["scale"], s


def capacity(spec):
    """C, from all tokens together or, per rank, the largest of the ranks' own."""
    if spec["capacity_factor"] is None:
        return None
    sizes = [sum(spec["tokens_per_rank"])] if spec["capacity_scope"] == "global" else spec["tokens_per_rank"]
    k = 1 if spec["order"] == "expert_choice" else spec["K"]
    return max(min(math.ceil(n * k / spec["E"] * spec["capacity_factor"]), n) for n in sizes)


def drop(spec, ids, scores):
    """kept[t][k]. Pools: all tokens, or each rank's own. position: first choices of all tokens in order, then second
    choices. probability: an expert keeps the routes with the largest score; ties to the lower token."""
    t = len(ids)
    kept, c = [[True] * spec["K"] for _ in range(t)], capacity(spec)
    if c is None:
        return kept
    sizes = [t] if spec["capacity_scope"] == "global" else spec["tokens_per_rank"]
    start = 0
    for n in sizes:
        routes = [(i, k) for k in range(spec["K"]) for i in range(start, start + n)]
        if spec["policy"] == "probability":
            routes.sort(key=lambda r: (-scores[r[0]][ids[r[0]][r[1]]].item(), r))
        used = [0] * spec["E"]
        for i, k in routes:
            kept[i][k] = used[ids[i][k]] < c
            used[ids[i][k]] += 1
        start += n
    return kept


def layer(spec, v):
    """y [T,D] and everything in between. `ids`, `kept` are plain lists: no gradient flows through decisions."""
    x = v["x_TD"]
    t, e = len(x), spec["E"]
    valid = [i not in spec.get("invalid", []) for i in range(t)]
    logits = x @ v["router_ED"].T
    if "router_bias_E" in v:
        logits = logits + v["router_bias_E"]
    noisy = logits
    if "noise_TE" in v:
        noisy = logits + v["noise_TE"] * torch.nn.functional.softplus(x @ v["noise_router_ED"].T)
    expert = lambda j, i: mlp(spec["expert"], x[i], v["w1_EFD"][j], v["w2_EDF"][j], v["w3_EFD"][j] if "w3_EFD" in v else None)
    y = [torch.zeros(D, dtype=torch.float64) for _ in range(t)]
    out = {"logits_TE": logits, "valid": valid}
    if "noise_TE" in v:
        out["noisy_logits_TE"] = noisy
    if spec["order"] == "expert_choice":
        p = torch.softmax(logits, 1)
        c = capacity(spec)
        tokens = [top(p[:, j].tolist(), c) for j in range(e)]
        for j in range(e):
            for i in tokens[j]:
                y[i] = y[i] + p[i, j] * expert(j, i)
        return out | {"y": torch.stack(y), "scores": p, "tokens_EC": tokens, "weights": torch.stack([p[tokens[j], j] for j in range(e)])}
    routed = [choose(spec, noisy[i], v.get("select_bias_E")) for i in range(t)]
    ids, scores = [r[0] for r in routed], torch.stack([r[2] for r in routed])
    kept = drop(spec, ids, scores)
    weights = []
    for i in range(t):
        w = routed[i][1] * torch.tensor([float(b and valid[i]) for b in kept[i]], dtype=torch.float64)
        if spec["renorm"] == "after_drop":
            total = w.sum()
            w = w / total if total.item() > 0 else w
        weights.append(w)
        for k in range(spec["K"]):
            if kept[i][k] and valid[i]:
                y[i] = y[i] + w[k] * expert(ids[i][k], i)
        if spec.get("shared"):
            own = mlp("swiglu", x[i], v["shared_w1_FD"], v["shared_w2_DF"], v["shared_w3_FD"])
            y[i] = y[i] + torch.sigmoid(v["shared_gate_D"] @ x[i]) * own
    return out | {"y": torch.stack(y), "scores": scores, "ids": ids, "kept": kept, "weights": torch.stack(weights)}


def balance(e, scale, chosen, p):
    """scale * sum_e n_e * sum_t p_te over the given tokens; `chosen` has one list of experts per token."""
    n = [sum(c.count(j) for c in chosen) for j in range(e)]
    return scale * sum(n[j] * p[:, j].sum() for j in range(e))


def aux(kind, spec, r):
    """Coefficient 1. Padding left out; counts before any drop."""
    rows = [i for i, ok in enumerate(r["valid"]) if ok]
    t, e, k = len(rows), spec["E"], spec["K"]
    l = r["logits_TE"][rows]
    if kind == "z":
        return torch.logsumexp(l, 1).square().mean()
    p, ids = torch.softmax(l, 1), [r["ids"][i] for i in rows]
    if kind == "switch":
        return balance(e, e / (k * t * t), ids, p)
    if kind == "gshard":
        return balance(e, e / (t * t), [c[:1] for c in ids], p)
    if kind == "hf":
        return balance(e, e / (t * t), ids, p)
    s, n = torch.sigmoid(l), spec["sequence"]  # DeepSeek-V3: scores normalised over the experts, one sequence at a time
    s = s / s.sum(1, keepdim=True)
    parts = [balance(e, e / (k * n * n), ids[i:i + n], s[i:i + n]) for i in range(0, t, n)]
    return sum(parts) / len(parts)


def case(name, spec, seed):
    v = inputs(spec, seed)
    learn = {n: p.requires_grad_() for n, p in v.items() if n not in FIXED}
    r = layer(spec, v)
    loss = (r["y"] * v["dy_TD"]).sum()
    integer = lambda a: torch.tensor(a, dtype=torch.int64)
    tensors = dict(v) | {"logits_TE": r["logits_TE"], "y_TD": r["y"], "token_valid_T": integer(r["valid"])}
    info = {"name": name, "seed": seed, "gate": {k: w for k, w in spec.items() if k != "aux"}, "D": D, "F": F,
            "capacity": capacity(spec), "loss_sum_y_dy": loss.item(), "aux": {}}
    if "noisy_logits_TE" in r:
        tensors["noisy_logits_TE"] = r["noisy_logits_TE"]
    if "ids" in r:
        tensors |= {"ids_TK": integer(r["ids"]), "kept_TK": integer(r["kept"]), "weights_TK": r["weights"]}
        count = [sum(c.count(j) for c, ok in zip(r["ids"], r["valid"]) if ok) for j in range(spec["E"])]
        info |= {"expert_count": count, "dropped_routes": sum(not k for row in r["kept"] for k in row)}
        if "select_bias_E" in v:
            mean = sum(count) / spec["E"]
            sign = torch.tensor([float((mean > c) - (mean < c)) for c in count], dtype=torch.float64)
            tensors["select_bias_after_update_E"] = v["select_bias_E"] + 1e-3 * sign
    else:
        tensors |= {"tokens_EC": integer(r["tokens_EC"]), "weights_EC": r["weights"]}
    for n, g in zip(learn, torch.autograd.grad(loss, learn.values(), retain_graph=True)):
        tensors["grad." + n] = g
    total = loss
    for kind in spec["aux"]:
        value = aux(kind, spec, r)
        info["aux"][kind] = value.item()
        total = total + value
        for n in ("x_TD", "router_ED", "router_bias_E"):
            if n in v:
                tensors[f"aux.{kind}.grad.{n}"] = torch.autograd.grad(value, v[n], retain_graph=True)[0]
    slopes = torch.autograd.grad(total, learn.values())
    difference(spec, v, learn, slopes)
    if not steady(spec, v, r) or (spec["policy"] and not info["dropped_routes"]):
        return None
    return {k: t.detach().contiguous() for k, t in tensors.items()}, info


def difference(spec, v, learn, slopes, h=1e-6):
    """Central difference of loss plus aux losses along a random direction."""
    g = torch.Generator().manual_seed(7)
    way = {n: torch.randn(p.shape, generator=g, dtype=torch.float64) for n, p in learn.items()}
    ends = []
    for sign in (1, -1):
        w = {n: (p + sign * h * way[n]).detach() if n in way else p for n, p in v.items()}
        r = layer(spec, w)
        ends.append(((r["y"] * w["dy_TD"]).sum() + sum(aux(k, spec, r) for k in spec["aux"])).item())
    want = sum((way[n] * s).sum().item() for n, s in zip(learn, slopes))
    assert abs((ends[0] - ends[1]) / (2 * h) - want) <= 1e-6 * max(1, abs(want)), (ends, want)


def steady(spec, v, r, size=1e-4):
    """Whether every decision survives small random changes of all inputs."""
    g = torch.Generator().manual_seed(8)
    for _ in range(4):
        w = {n: p.detach() + (size * torch.randn(p.shape, generator=g, dtype=torch.float64) if n not in FIXED else 0) for n, p in v.items()}
        again = layer(spec, w)
        if any(again.get(k) != r.get(k) for k in ("ids", "kept", "tokens_EC")):
            return False
    return True


def known_values():
    """Worked examples, to six digits."""
    near = lambda a, b: all(abs(p - q) < 1e-6 for p, q in zip(a, b)) and len(a) == len(b)
    l = torch.tensor([[2, 1, 0, -1], [.5, .5, -.5, 3], [-1, .25, .75, 0]], dtype=torch.float64)
    spec = BASE | {"E": 4, "renorm": "before_drop"}
    got = [choose(spec, row) for row in l]
    assert [g[0] for g in got] == [[0, 1], [3, 0], [2, 1]]
    assert near(sum((g[1].tolist() for g in got), []), [.731059, .268941, .924142, .075858, .622459, .377541])
    r = {"valid": [True] * 3, "logits_TE": l, "ids": [g[0] for g in got]}
    assert near([aux(k, spec, r).item() for k in ("hf", "switch", "gshard", "z")], [1.939841, .969920, 1.077840, 6.163994])
    spec = BASE | CASES["deepseek_v3"]
    ids, w, _ = choose(spec, torch.tensor([1, -.5, .2, .9, -2, 1.5, 0, .1], dtype=torch.float64),
                       torch.tensor([0, .1, -.2, 0, .3, -.4, 0, .5], dtype=torch.float64))
    assert ids == [7, 0, 6] and near(w.tolist(), [.747392, 1.040779, .711830])
    ids, w, _ = choose(spec, torch.tensor([-3, -2.5, -2.8, -3.2, -4, -1, -2, -2.2], dtype=torch.float64),
                       -torch.ones(8, dtype=torch.float64))
    assert ids == [5, 6, 7] and near(w.tolist(), [1.378071, .610802, .511127])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out_dir", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "layer")
    p.add_argument("--seed", type=int, default=900)
    args = p.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    known_values()
    groups = {}
    for name, change in CASES.items():
        groups.setdefault(change.get("data", name), {})[name] = BASE | change
    for n, members in enumerate(groups.values()):
        for seed in range(args.seed + n, args.seed + 100000, 100):  # the first with all decisions far from a tie, and all rules different
            made = {name: case(name, spec, seed) for name, spec in members.items()}
            if all(made.values()) and len({tuple(t["y_TD"].reshape(-1).tolist()) for t, _ in made.values()}) == len(made):
                break
        for name, (tensors, info) in made.items():
            file = args.out_dir / f"{name}.safetensors"
            save_file(tensors, file)
            file.chmod(0o644)
            (args.out_dir / f"{name}.json").write_text(json.dumps(info, indent=1) + "\n")
            print(f"{name}: seed {seed} counts {info.get('expert_count')} C {info['capacity']} "
                  f"dropped {info.get('dropped_routes')} aux {info['aux']}", flush=True)


if __name__ == "__main__":
    main()
