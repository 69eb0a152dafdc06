"""The regions of a placed model against the SRAM of their PEs, those alike in one row."""

from typing import TYPE_CHECKING

import pandas as pd

from wafer_jax.models.program_image import image_bytes
from wafer_jax.models.wafer_regions import Region

if TYPE_CHECKING:
    from wafer_jax.models.placement import Placement


def region_table(placement: "Placement") -> pd.DataFrame:
    """`Placement.summary`."""
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
