"""Which formats of a model's weights fit a machine, and how many tokens beside them."""

from typing import TYPE_CHECKING

from wafer_jax.hardware import HardwareSpec
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import largest_region_bytes
from wafer_jax.models.placement import kv_capacity, smallest_side
from wafer_jax.models.storage import STORAGES

if TYPE_CHECKING:
    import pandas as pd


def what_fits(
    config: DecoderConfig, hw: HardwareSpec, expert_grid: tuple[int, int] = (1, 1)
) -> "pd.DataFrame":
    """Smallest square regions for one layer, and the tokens that ``hw.mesh`` can hold, by dtype.

    Args:
      config: The model.
      hw: Machine; ``hw.mesh`` is the region of one layer.
      expert_grid: Regions for experts within it, as for `place`.

    Returns:
      One row per dtype with the columns dtype, smallest_side (PEs; <NA> where no square of the
      device does), fits (whether ``hw.mesh`` holds a layer at all) and kv_capacity (tokens).
    """
    import pandas as pd

    rows, layout = [], LayerLayout(config, hw.mesh, expert_grid)
    for dtype in STORAGES:
        side = smallest_side(config, hw, dtype, expert_grid=expert_grid)
        needed = largest_region_bytes(layout, dtype, context=1, prompt=1)
        fits = needed.used_bytes <= hw.data_bytes
        capacity = kv_capacity(layout, hw, dtype) if fits else 0
        rows.append((dtype, side, fits, capacity))
    frame = pd.DataFrame(rows, columns=["dtype", "smallest_side", "fits", "kv_capacity"])
    return frame.astype({"smallest_side": "Int64"})
