"""Kinds of feed-forward layers, one file each; a new one is added to ``KINDS``.

A kind is a module with the functions of `swiglu`: its parameters, its dense reference ``Dense``,
its tiles and values on the mesh for decode and prefill, their costs and their memory.
"""

from types import ModuleType

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.feed_forward import experts, shared_experts, swiglu

KINDS: dict[str, ModuleType] = {
    "swiglu": swiglu,
    "experts": experts,
    "shared_experts": shared_experts,
}
"""By ``DecoderConfig.feed_forward``."""


def kind_of(config: DecoderConfig) -> ModuleType:
    """The module of a model's feed-forward layers."""
    return KINDS[config.feed_forward]
