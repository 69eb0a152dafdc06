"""Which PEs of which wafer hold what: regions, their bytes per PE, and what fits.

A decoder layer occupies a region of ``hw.mesh`` PEs, or several consecutive layers share one: each
has its weights and its KV cache there, and all use the same buffers. The embedding and the head
have regions of their own, as many columns as their tiles need, with the layers' number of rows so
that the embedding axis is cut alike. A head that shares the embedding's weights shares its region.
Regions follow one another along the rows of the wafer, in the order in which a token visits them;
what does not fit goes on the next wafer (pipeline parallelism, WaferLLM, arXiv 2502.04563, section
4).
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from wafer_jax.arguments import shown, whole
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.models.caches import check_policy, policy_of
from wafer_jax.models.config import DecoderConfig, check_decoder
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout
from wafer_jax.models.mesh_memory import (
    RegionBytes,
    different_region_bytes,
    largest_region_bytes,
    layer_weights_bytes,
    layers_of_regions,
    region_bytes,
    vocab_bytes,
)
from wafer_jax.models.storage import Storage, storage_of
from wafer_jax.models.wafer_regions import Region, Task, pack

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A model on one or several wafers.

    Attributes:
      hw: Machine; ``hw.mesh`` is the region of a layer.
      config: The model.
      dtype: What weights are stored in, a name of `storage.STORAGES`; KV cache and activations
        are counted in its compute type.
      context: Tokens of one sequence that the KV caches are sized for.
      layer: Layout of the layers.
      embedding: Layout of the embedding.
      head: Layout of the head.
      regions: In the order in which a token visits them.
      layers_per_region: Consecutive layers that share a region; the last may have fewer.
      batch: Sequences, each with caches for a context.
    """

    hw: HardwareSpec
    config: DecoderConfig
    dtype: str
    context: int
    layer: LayerLayout
    embedding: VocabLayout
    head: VocabLayout
    regions: tuple[Region, ...]
    layers_per_region: int = 1
    batch: int = 1

    @property
    def storage(self) -> Storage:
        """Format of the projections' weights."""
        return storage_of(self.dtype)

    @property
    def wafers(self) -> int:
        """Wafers needed."""
        return self.regions[-1].wafer + 1

    @property
    def num_pes(self) -> int:
        """PEs of all regions."""
        return sum(r.mesh[0] * r.mesh[1] for r in self.regions)

    @property
    def path(self) -> tuple[Region, ...]:
        """Regions that a token visits, the head's last even where it is the embedding's."""
        last = (self.regions[0],) if self.config.tie_embeddings else ()
        return self.regions + last

    @property
    def kv_capacity(self) -> int:
        """Tokens of each sequence that a region of layers can hold at most."""
        return kv_capacity(self.layer, self.hw, self.dtype, self.layers_per_region, self.batch)

    @property
    def kv_rows(self) -> int:
        """Rows of PEs that the tokens of a growing cache are spread over."""
        return policy_of(self.layer).rows(self.layer)

    @property
    def layers_of_regions(self) -> list[range]:
        """Numbers of the layers in each region that has some."""
        return layers_of_regions(self.config, self.layers_per_region)

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per region: where it is and what one of its PEs holds."""
        import pandas as pd

        rows = [
            {
                "region": r.name,
                "wafer": r.wafer,
                "y": r.origin[0],
                "x": r.origin[1],
                "rows": r.mesh[0],
                "columns": r.mesh[1],
                "weights_bytes": r.memory.weights_bytes,
                "kv_bytes": r.memory.kv_bytes,
                "buffers_bytes": r.memory.buffers_bytes,
                "used_bytes": r.memory.used_bytes,
                "free_bytes": self.hw.data_bytes - r.memory.used_bytes,
            }
            for r in self.regions
        ]
        return pd.DataFrame(rows)

    @property
    def summary(self) -> "pd.DataFrame":
        """One row per kind of region: what one of its PEs holds, of how many bytes.

        The columns are region (the first and the last), count, pes ("YxX" of one), weights_bytes,
        kv_bytes, buffers_bytes, reserved_bytes (the part of the program that every program has),
        used_bytes (the sum of the four), sram_bytes, used_percent, and program_bytes, an estimate
        of the whole program, see `program_image`. Bytes are of one PE.
        """
        from wafer_jax.models.region_table import region_table  # brings pandas along

        return region_table(self)

    def __repr__(self) -> str:
        height, width = self.hw.mesh
        layers = f"{self.layers_per_region} layers" if self.layers_per_region > 1 else "a layer"
        sequences = f"{self.batch} sequences of " if self.batch > 1 else ""
        wafers = f"{self.wafers} wafer{'s' if self.wafers > 1 else ''}"
        return (
            f"Placement({self.config.num_layers} layers in {self.dtype}, {layers} on "
            f"{height}x{width} PEs, KV caches of {sequences}{self.context:,} tokens: "
            f"{self.num_pes:,} PEs on {wafers} of {self.hw.name})"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.summary.round(1).to_html(index=False)}"


def place(
    config: DecoderConfig,
    hw: HardwareSpec,
    *,
    context: int = 1,
    prompt: int = 1,
    dtype: str = "float32",
    layers_per_region: int = 1,
    expert_grid: tuple[int, int] = (1, 1),
    batch: int = 1,
    kv: str = "shift",
) -> Placement:
    """Place a model.

    Args:
      config: The model.
      hw: Machine; ``hw.mesh`` is the region of layers, ``hw.device_mesh`` the wafer.
      context: Tokens that the KV caches must hold, of each sequence.
      prompt: Tokens of the longest prompt; prompts come one at a time.
      dtype: What weights are stored in: float32, float16, bfloat16, or packed (q8_0, q4_1, q4_0,
        q6_k, q5_k, q4_k, q3_k, q2_k, fp8, mxfp4); see `storage`.
      layers_per_region: Consecutive layers that share a region.
      expert_grid: Rows and columns of regions within a layer's region that have experts of their
        own; by default every expert is tiled over all of it.
      batch: Sequences that are decoded together.
      kv: How keys and values of a growing context lie over the rows: "shift" spreads them evenly,
        "concat" has them all in the last row; see `caches`.

    Returns:
      The placement.

    Raises:
      WaferError: A region's tiles exceed its PEs' SRAM; the line names the region, the bytes and
        the smallest square region that would do. Fewer tokens, sequences or layers than 1. A grid
        that a layer's region or its experts cannot be cut into.
    """
    check_decoder(config)
    for name, count in (("context", context), ("prompt", prompt), ("batch", batch)):
        if whole(count, name) < 1:
            raise WaferError(f"{name}={count}: choose at least 1")
    storage_of(dtype)
    if type(layers_per_region) is not int or not 1 <= layers_per_region <= config.num_layers:
        raise WaferError(
            f"layers_per_region={shown(layers_per_region)}: choose 1 to {config.num_layers}, the "
            "layers of the model"
        )
    _check_grid(config, hw.mesh, expert_grid)
    layer = LayerLayout(config, hw.mesh, expert_grid, check_policy(kv))
    _check_layers(layer, hw, dtype, context, prompt, layers_per_region, batch)
    tied = config.tie_embeddings
    first = "embedding and head" if tied else "embedding"
    vocab = _vocab_layout(config, hw, dtype, first, batch)
    vocabulary = lambda name: Task(name, vocab.mesh, vocab_bytes(vocab, dtype, batch))
    tasks = [vocabulary(first)]
    for layers in layers_of_regions(config, layers_per_region):
        memory = region_bytes(layer, dtype, context, prompt, layers, batch)
        tasks.append(Task(_name(layers), hw.mesh, memory, layers))
    if not tied:
        tasks.append(vocabulary("head"))
    return Placement(
        hw=hw,
        config=config,
        dtype=dtype,
        context=context,
        layer=layer,
        embedding=vocab,
        head=vocab,
        regions=tuple(pack(tasks, hw.device_mesh)),
        layers_per_region=layers_per_region,
        batch=batch,
    )


def _check_grid(config: DecoderConfig, mesh: tuple[int, int], grid: tuple[int, int]) -> None:
    if grid == (1, 1):
        return
    pair = isinstance(grid, tuple) and len(grid) == 2 and all(type(n) is int for n in grid)
    if not pair or min(grid) < 1 or grid[0] > mesh[0] or grid[1] > mesh[1]:
        raise WaferError(
            f"expert_grid={shown(grid)}: choose (rows, columns) of regions, at most one per PE of "
            f"a layer's {mesh[0]}x{mesh[1]}"
        )
    if config.experts is None:
        raise WaferError(f"expert_grid={shown(grid)}: this model has no experts, leave it out")
    if grid[0] * grid[1] > (experts := config.experts.count):
        raise WaferError(
            f"expert_grid={shown(grid)} has {grid[0] * grid[1]} regions, a layer has {experts} "
            f"expert{'s' if experts > 1 else ''}: choose no more regions than experts"
        )


def _name(layers: range) -> str:
    if len(layers) == 1:
        return f"layer {layers[0]}"
    return f"layers {layers[0]} to {layers[-1]}"


def kv_capacity(
    layer: LayerLayout, hw: HardwareSpec, dtype: str, layers_per_region: int = 1, batch: int = 1
) -> int:
    """Tokens of each sequence that a region of layers can hold beside its weights and buffers."""
    rows = policy_of(layer).rows(layer)
    needed = lambda slots: largest_region_bytes(
        layer, dtype, slots * rows, 1, layers_per_region, batch
    )
    over = lambda slots: not _fits(needed(slots), hw)
    return max(0, bisect_left(range(hw.data_bytes), True, key=over) - 1) * rows


def smallest_side(
    config: DecoderConfig,
    hw: HardwareSpec,
    dtype: str,
    context: int = 1,
    prompt: int = 1,
    layers_per_region: int = 1,
    expert_grid: tuple[int, int] = (1, 1),
    batch: int = 1,
    kv: str = "shift",
) -> int | None:
    """Side of the smallest square region of layers that fits; None where none does.

    Args:
      config: The model.
      hw: Machine; its mesh is not looked at.
      dtype: As for `place`.
      context: Likewise.
      prompt: Likewise.
      layers_per_region: Likewise.
      expert_grid: Likewise.
      batch: Likewise.
      kv: Likewise.
    """
    regions = lambda layout: different_region_bytes(
        layout, dtype, context, prompt, layers_per_region, batch
    )

    def fits(side: int) -> bool:
        layout = LayerLayout(config, (side, side), expert_grid, kv)
        if layer_weights_bytes(layout, dtype) > hw.data_bytes:  # spares most sides the buffers
            return False
        return all(_fits(region, hw) for region in regions(layout))

    # However they are cut, all PEs together hold what one would.
    weights = max(region.weights_bytes for region in regions(LayerLayout(config, (1, 1), kv=kv)))
    least = max(*expert_grid, math.isqrt(weights // hw.data_bytes))
    return next(filter(fits, range(least, min(hw.device_mesh) + 1)), None)


def _check_layers(
    layer: LayerLayout,
    hw: HardwareSpec,
    dtype: str,
    context: int,
    prompt: int,
    layers: int,
    batch: int,
) -> None:
    """Refuse a region that does not hold so many layers."""
    memory = largest_region_bytes(layer, dtype, context, prompt, layers, batch)
    if _fits(memory, hw):
        return
    whose = "a layer's region" if layers == 1 else f"a region of {layers} layers"
    where = f"{whose} of {layer.mesh[0]}x{layer.mesh[1]} PEs"
    advice = _advice(layer, hw, dtype, context, prompt, layers, batch)
    least = largest_region_bytes(layer, dtype, 1, 1, layers)
    if not _fits(least, hw):
        raise WaferError(
            f"{where} needs {least.used_bytes:,} bytes per PE ({least.weights_bytes:,} of them "
            f"weights in {dtype}), {hw.name} has {hw.data_bytes:,} for data: {advice}"
        )
    capacity = kv_capacity(layer, hw, dtype, layers, batch)
    each, fewer = (f" in each of {batch} sequences", "fewer sequences, ") if batch > 1 else ("", "")
    if context > capacity:
        raise WaferError(
            f"{context:,} tokens{each} are over the KV capacity of {where}: {capacity:,} tokens "
            f"fit beside its weights in {dtype}; shorten the prompt, ask for fewer tokens, "
            f"{fewer}or {advice}"
        )
    raise WaferError(
        f"{where} needs {memory.used_bytes:,} bytes per PE for a prompt of {prompt:,} tokens and "
        f"a context of {context:,}, {hw.name} has {hw.data_bytes:,}: shorten the prompt, or "
        f"{advice}"
    )


def _advice(
    layer: LayerLayout,
    hw: HardwareSpec,
    dtype: str,
    context: int,
    prompt: int,
    layers: int,
    batch: int,
) -> str:
    where = layers, layer.expert_grid, batch, layer.kv
    if side := smallest_side(layer.config, hw, dtype, context, prompt, *where):
        (height, width), blocks = layer.mesh, math.lcm(*layer.mesh)
        padded = f" (MeshGEMM pads sizes to blocks, lcm({height}, {width}) = {blocks:,} of them)"
        why = padded if blocks > max(layer.config.hidden_size, *layer.mesh) else ""
        return f"choose another mesh{why}: the smallest square that fits is {side}x{side}"
    if layers > 1:
        return f"choose fewer layers per region: no square region of {hw.name} is enough"
    return (
        "use a smaller dtype, a smaller model or a larger machine: no square region of "
        f"{hw.name} is enough"
    )


def _vocab_layout(
    config: DecoderConfig, hw: HardwareSpec, dtype: str, name: str, batch: int
) -> VocabLayout:
    """As many rows as a layer has (or a multiple) and as few columns as the tiles allow."""
    height, (device_height, device_width) = hw.mesh[0], hw.device_mesh
    least = None
    for rows in range(height, device_height + 1, height):
        layouts = [VocabLayout(config, (rows, columns)) for columns in range(1, device_width + 1)]
        fits = lambda layout: _fits(vocab_bytes(layout, dtype, batch), hw)
        if fits(layouts[-1]):
            return layouts[bisect_left(layouts, True, key=fits)]
        least = vocab_bytes(layouts[-1], dtype, batch)
    assert least is not None
    raise WaferError(
        f"the region of the {name} needs {least.used_bytes:,} bytes per PE even on the whole "
        f"{hw.name}, which has {hw.data_bytes:,}: choose a smaller dtype or model"
    )


def _fits(memory: RegionBytes, hw: HardwareSpec) -> bool:
    return memory.used_bytes <= hw.data_bytes
