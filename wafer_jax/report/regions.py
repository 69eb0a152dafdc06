"""The regions of a placed model against the SRAM of their PEs, and what else would fit."""

import pandas as pd

from wafer_jax.hardware import HardwareSpec
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import largest_region_bytes
from wafer_jax.models.placement import Placement, kv_capacity, smallest_side
from wafer_jax.models.program_image import image_bytes
from wafer_jax.models.storage import STORAGES
from wafer_jax.models.wafer_regions import Region


def regions(placement: Placement) -> pd.DataFrame:
    """Bytes per PE of every kind of region.

    Args:
      placement: The placed model.

    Returns:
      One row per kind of region with the columns region (the first and the last), count, pes
      ("YxX" of one), weights_bytes, kv_bytes, buffers_bytes, reserved_bytes (the part of the
      program that every program has), used_bytes (the sum of the four), sram_bytes, used_percent,
      and program_bytes, an estimate of the whole program, see `program_image`. Bytes are of one PE.
    """
    reserved, sram = placement.hw.reserved_bytes, placement.hw.sram_bytes
    program = image_bytes(placement.hw)
    alike: dict[tuple, list[Region]] = {}
    for region in placement.regions:
        key = (region.mesh, region.memory, None if region.layers else region.name)
        alike.setdefault(key, []).append(region)
    rows = []
    for (mesh, memory, _), members in alike.items():
        used = memory.used_bytes + reserved
        rows.append(
            {
                "region": _name(members),
                "count": len(members),
                "pes": f"{mesh[0]}x{mesh[1]}",
                "weights_bytes": memory.weights_bytes,
                "kv_bytes": memory.kv_bytes,
                "buffers_bytes": memory.buffers_bytes,
                "reserved_bytes": reserved,
                "used_bytes": used,
                "sram_bytes": sram,
                "used_percent": 100 * used / sram,
                "program_bytes": program,
            }
        )
    return pd.DataFrame(rows)


def _name(members: list[Region]) -> str:
    first, last = members[0].layers, members[-1].layers
    if len(members) == 1:
        return members[0].name
    if sum(len(member.layers) for member in members) == last[-1] - first[0] + 1:
        shared = any(len(member.layers) > 1 for member in members)
        return f"layer{'s' * shared} {first[0]} to {last[-1]}"
    each = [member.name.removeprefix("layers ").removeprefix("layer ") for member in members]
    return "layers " + ", ".join(each if len(each) <= 3 else (*each[:2], "...", each[-1]))


def what_fits(
    config: DecoderConfig, hw: HardwareSpec, expert_grid: tuple[int, int] = (1, 1)
) -> pd.DataFrame:
    """Smallest square regions for one layer, and the tokens that ``hw.mesh`` can hold, by dtype.

    Args:
      config: The model.
      hw: Machine; ``hw.mesh`` is the region of one layer.
      expert_grid: Regions for experts within it, as for `place`.

    Returns:
      One row per dtype with the columns dtype, smallest_side (PEs; <NA> where no square of the
      device does), fits (whether ``hw.mesh`` holds a layer at all) and kv_capacity (tokens).
    """
    rows, layout = [], LayerLayout(config, hw.mesh, expert_grid)
    for dtype in STORAGES:
        side = smallest_side(config, hw, dtype, expert_grid=expert_grid)
        needed = largest_region_bytes(layout, dtype, context=1, prompt=1)
        fits = needed.used_bytes <= hw.data_bytes
        capacity = kv_capacity(layout, hw, dtype) if fits else 0
        rows.append((dtype, side, fits, capacity))
    frame = pd.DataFrame(rows, columns=["dtype", "smallest_side", "fits", "kv_capacity"])
    return frame.astype({"smallest_side": "Int64"})
