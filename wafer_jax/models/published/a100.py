"""A roofline of decoders on A100s: the rates that no server can exceed.

A prefill computes, a token reads: multiply-adds at the tensor cores' peak rate, weights and KV
cache once at the memory's. Tensor parallelism divides both by the number of GPUs for free; what
GPUs send to each other, launches of kernels and sampling are not modelled. Real servers stay below
it, the farther the more GPUs there are.
"""

from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.parameters import num_parameters

PEAK_FLOPS = 312e12
"""Dense float16 on tensor cores (NVIDIA A100 data sheet)."""
MEMORY_BYTES_PER_S = 2.039e12
"""HBM of the A100 80 GB SXM (same data sheet). WaferLLM does not say which A100 it has; the one of
40 GB has 1.555e12."""


def prefill_tokens_per_s(config: DecoderConfig, tokens: int, gpus: int = 1) -> float:
    """Upper bound for a prompt on its own.

    Args:
      config: The model.
      tokens: Tokens of the prompt.
      gpus: GPUs that share the work.
    """
    heads = config.num_heads * config.head_dim * config.num_layers
    attention = 2 * 2 * tokens * heads / 2  # scores and output, half of them masked
    embedding = config.vocab_size * config.hidden_size  # looked up
    weights = num_parameters(config) - embedding * (not config.tie_embeddings)
    return gpus * PEAK_FLOPS / (2 * weights + attention)


def decode_tokens_per_s(config: DecoderConfig, context: int, gpus: int = 1) -> float:
    """Upper bound for one request.

    Args:
      config: The model.
      context: Tokens in the KV cache.
      gpus: GPUs that share the work.
    """
    cache = 2 * config.kv_size * config.num_layers * context
    embedding = config.vocab_size * config.hidden_size  # one row of it is read
    weights = num_parameters(config) - embedding * (not config.tie_embeddings)
    moved = (weights + cache) * DTYPE_BYTES["float16"]
    return gpus * MEMORY_BYTES_PER_S / moved
