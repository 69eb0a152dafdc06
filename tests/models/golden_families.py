"""Logits of every tiny model from Hugging Face transformers, and the file that keeps them.

``python tests/models/golden_families.py`` writes the file anew; it needs torch and transformers.
"""

import copy
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from models.published import published
from models.tiny_families import FAMILIES
from models.tiny_llama import random_weights
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.families import read_config

FILE = Path(__file__).with_name("golden_families.npz")
PROMPT, STEPS = 7, 16
IDS = np.random.default_rng(2).integers(0, 97, (2, PROMPT + STEPS))


def tiny(name: str) -> Checkpoint:
    """A family's tiny configuration with random weights."""
    config = read_config(FAMILIES[name])
    return Checkpoint(config, random_weights(config, seed=7), None, name, "memory")


@cache
def golden() -> dict[str, np.ndarray]:
    """Logits [B, T, V] of IDS by name, from the file."""
    with np.load(FILE) as file:
        return dict(file)


@cache
def hf_model(name: str) -> Any:
    """Transformers' own model, through its own loader of checkpoints."""
    import torch
    import transformers

    transformers.logging.disable_progress_bar()
    attributes = {k: v for k, v in FAMILIES[name].items() if k != "torch_dtype"}
    # A copy, since transformers writes into the nested RoPE settings.
    config = transformers.AutoConfig.for_model(**copy.deepcopy(attributes))
    state = {k: torch.from_numpy(np.array(v)) for k, v in published(tiny(name)).items()}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model, report = getattr(transformers, attributes["architectures"][0]).from_pretrained(
        None,
        config=config,
        state_dict=state,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
        output_loading_info=True,
    )
    assert not any(report.values()), report
    return model.eval()


def hf_logits(name: str) -> np.ndarray:
    """Logits [B, T, V] of IDS from transformers."""
    import torch

    with torch.no_grad():
        return hf_model(name)(torch.tensor(IDS)).logits.numpy()


if __name__ == "__main__":
    np.savez_compressed(FILE, allow_pickle=False, **{name: hf_logits(name) for name in FAMILIES})
