"""The same weights in Hugging Face transformers, as a reference that shares no code with ours."""

import importlib.util

import numpy as np

from wafer_jax.models.activations import ClampedSwiGLU
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.config import DecoderConfig, RopeConfig, YarnScaling
from wafer_jax.models.families import FAMILIES


def is_installed() -> bool:
    """Say whether torch and transformers can be imported."""
    return all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


def forward(checkpoint: Checkpoint, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Run transformers' own model on a checkpoint's weights, with eager attention in float32.

    Args:
      checkpoint: Configuration and weights.
      ids: T token ids.

    Returns:
      Logits [T, V] float32, and the residual stream [L, T, E] float32: the embedding and then the
      output of every layer but the last, of which transformers gives only the normalised form.
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    family = checkpoint.config.family
    config = transformers.AutoConfig.for_model(family, **_attributes(checkpoint.config))
    tensors = FAMILIES[family].published(checkpoint.weights)
    state = {name: torch.from_numpy(np.array(w)) for name, w in tensors.items()}
    if checkpoint.config.tie_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    # Its own loader, which knows what it calls the tensors of a checkpoint inside.
    model = getattr(transformers, FAMILIES[family].architecture).from_pretrained(
        None,
        config=config,
        state_dict=state,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    with torch.no_grad():
        out = model.eval()(torch.tensor([ids]), output_hidden_states=True)
    hidden = np.stack([h[0].numpy() for h in out.hidden_states[:-1]])
    return out.logits[0].numpy(), hidden


def _attributes(config: DecoderConfig) -> dict:
    """A configuration under Hugging Face's names."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": _rope(config.rope) | _partial(config),
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": config.out_bias,
        "bos_token_id": None,
        "eos_token_id": None,
        **_experts(config),
        **_windows(config),
        **_delta(config),
    }


def _rope(rope: RopeConfig) -> dict:
    scaling = rope.scaling
    if scaling is None:
        return {"rope_type": "default", "rope_theta": rope.theta}
    parameters = {
        "rope_theta": rope.theta,
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_positions,
    }
    if isinstance(scaling, YarnScaling):
        return parameters | {
            "rope_type": "yarn",
            "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow,
            "attention_factor": scaling.magnitude,
            "truncate": scaling.whole_places,
        }
    return parameters | {
        "rope_type": "llama3",
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
    }


def _partial(config: DecoderConfig) -> dict:
    if config.rope.rotary_dim is None:
        return {}
    return {"partial_rotary_factor": config.rope.rotary_dim / config.head_dim}


def _windows(config: DecoderConfig) -> dict:
    if config.window is None:
        return {}
    names = {"full": "full_attention", "sliding": "sliding_attention"}
    types = [names[kind] for kind in config.attention] * config.periods
    return {"layer_types": types, "sliding_window": config.window}


def _delta(config: DecoderConfig) -> dict:
    heads = config.delta
    if heads is None:
        return {}
    names = {"full": "full_attention", "gated_delta": "linear_attention"}
    return {
        "layer_types": [names[kind] for kind in config.attention] * config.periods,
        "linear_num_key_heads": heads.keys,
        "linear_num_value_heads": heads.values,
        "linear_key_head_dim": heads.key_dim,
        "linear_value_head_dim": heads.value_dim,
        "linear_conv_kernel_dim": heads.kernel,
    }


def _experts(config: DecoderConfig) -> dict:
    if config.experts is None:
        return {}
    clamped = {}
    if isinstance(config.activation, ClampedSwiGLU):
        clamped = {
            "swiglu_alpha": config.activation.alpha,
            "swiglu_limit": config.activation.limit,
        }
    return clamped | {
        "num_experts": config.experts.count,
        "num_experts_per_tok": config.experts.chosen,
        "norm_topk_prob": config.experts.renormalise,
        "moe_intermediate_size": config.intermediate_size,
        "shared_expert_intermediate_size": config.experts.shared_size,
    }
