"""Weights of the tiny models under the names and in the layout of published checkpoints."""

import re

import numpy as np

from wafer_jax.models.checkpoints import Checkpoint

_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight|bias)")


def published(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Tensors as Hugging Face's hub has them for this family."""
    if checkpoint.config.family == "gpt_oss":
        return _gpt_oss(checkpoint.weights)
    if checkpoint.config.family == "minimax_m2":
        return {_mixtral(name): values for name, values in checkpoint.weights.items()}
    return dict(checkpoint.weights)


def _mixtral(name: str) -> str:
    for ours, theirs in {"gate": "w1", "up": "w3", "down": "w2"}.items():
        name = name.replace(f"{ours}_proj.", f"{theirs}.") if ".experts." in name else name
    return name.replace(".mlp.", ".block_sparse_moe.")


def _gpt_oss(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Fused experts, [N, in, out], gate and up in turns; the router under its own name."""
    tensors, experts = {}, {}
    for name, values in weights.items():
        if found := _EXPERT.fullmatch(name):
            stem, number, projection, kind = found.groups()
            experts.setdefault((stem, kind), {})[projection, int(number)] = values.T
        else:
            tensors[name.replace(".mlp.gate.", ".mlp.router.")] = values
    for (stem, kind), each in experts.items():
        suffix = "_bias" if kind == "bias" else ""
        gate_up = np.stack([_of_all(each, "gate"), _of_all(each, "up")], axis=-1)
        tensors[f"{stem}.gate_up_proj{suffix}"] = gate_up.reshape(*gate_up.shape[:-2], -1)
        tensors[f"{stem}.down_proj{suffix}"] = _of_all(each, "down")
    return {name: np.ascontiguousarray(values) for name, values in tensors.items()}


def _of_all(each: dict[tuple[str, int], np.ndarray], projection: str) -> np.ndarray:
    return np.stack([each[projection, j] for j in range(len(each) // 3)])
