"""The parameters of a decoder under their Hugging Face names."""

import math
from types import ModuleType

from wafer_jax.models.attention import kinds_of
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.feed_forward import kind_of


def parameter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """List every parameter by its Hugging Face name, with its shape in that layout.

    Args:
        config: the model.

    Returns:
        Name to shape; projections are ``[out, in]``. A tied head has no entry of its own.
    """
    E = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, E)}
    period = [_layer_shapes(config, kind) for kind in kinds_of(config)]
    for i in range(config.num_layers):
        layer = period[i % len(period)]
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (E,)
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, E)
    return shapes


def num_parameters(config: DecoderConfig) -> int:
    """Count the parameters, a tied head once.

    Args:
        config: the model.

    Returns:
        Their number.
    """
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


def _layer_shapes(config: DecoderConfig, attention: ModuleType) -> dict[str, tuple[int, ...]]:
    """One decoder layer, names below ``model.layers.N.``."""
    E = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (E,)}
    own = attention.parameter_shapes(config)
    shapes |= {f"{attention.NAME}.{name}": shape for name, shape in own.items()}
    shapes["post_attention_layernorm.weight"] = (E,)
    feed_forward = kind_of(config).parameter_shapes(config)
    return shapes | {f"mlp.{name}": shape for name, shape in feed_forward.items()}
