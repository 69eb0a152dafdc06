"""Tiled star stencils: steady cycles per iteration, by the closed form of `collectives.stencil`.

Published by Jorineg (cerebras, tiled-stencil) for both parts, each on the vendor's simulator, as
half the difference between four iterations and two; ours is the same difference. The published
mesh has the PEs at the edge, which hold the boundary.
"""

import re

from wafer_jax.collectives import stencil_cost
from wafer_jax.report.published import Bar, Family, NotExpressible, Ours, PublishedPoint

_CALIBRATION = "experiments num PE stability_results.md"
"""The rows that constants of `collectives.stencil_cost` were fitted to."""


def _ours(point: PublishedPoint) -> Ours:
    radius = re.fullmatch(r"stencil2d_star_r(\d{1,3})_tiled", point.experiment)
    tile = re.match(r"tile (\d{1,4})x(\d{1,4})\b", point.size)
    if radius is None or tile is None:
        raise NotExpressible("of a stencil, tile WxH and stencil2d_star_rR_tiled are known")
    hw, (width, height) = point.machine(), map(int, tile.groups())
    cycles = stencil_cost.published(hw, height, width, int(radius[1]), hw.mesh)
    fitted = "task_cycles and others" if point.source.endswith(_CALIBRATION) else ""
    return Ours(value=cycles, level="cost", calibrated=fitted)


FAMILY = Family(
    name="stencil",
    experiments=r"stencil2d_star_r\d+_tiled",
    ours=_ours,
    bar=Bar(median=10.0),
)
