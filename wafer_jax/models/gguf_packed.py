"""Matrices of a GGUF file that can be multiplied as they are stored, in Hugging Face's layout."""

from functools import partial

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.gguf_file import GGUFFile, hf_name, to_half_split
from wafer_jax.models.quantized.packed import FORMATS, PackedMatrix, PackedSource, from_blocks


def packed_sources(file: GGUFFile, config: DecoderConfig) -> dict[str, PackedSource]:
    """List them.

    Args:
        file: the open file.
        config: what ``gguf_file.read_config`` returned for it.

    Returns:
        Hugging Face name to source.
    """
    return {
        hf_name(name): PackedSource(info.kind.name.lower(), partial(_read, file, name, config))
        for name, info in file.tensors.items()
        if len(info.shape) == 2 and info.kind.name.lower() in FORMATS
    }


def _read(file: GGUFFile, name: str, config: DecoderConfig) -> PackedMatrix:
    info = file.tensors[name]
    matrix = from_blocks(file.read_blocks(name), info.kind.name.lower(), info.shape[1])
    if ".attn_q." in name:
        return matrix.map_rows(partial(to_half_split, num_heads=config.num_heads))
    if ".attn_k." in name:
        return matrix.map_rows(partial(to_half_split, num_heads=config.num_kv_heads))
    return matrix
