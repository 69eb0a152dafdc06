"""What a block of the wafer learns from the devices around it (`Blocks`).

Communication of one cycle: the lanes along each edge, before and after the routers decide, one
permute per direction and phase for all colours together; and one reduction to a scalar.
"""

from itertools import accumulate

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.hardware import OPPOSITE, E, N, S, W
from wafer_jax.jitter import pe_of_lane
from wafer_jax.step_spec import StepSpec

AXES = ("y", "x")
"""Names of the device mesh's axes."""
Edges = dict[int, jax.Array]
"""By direction, the lanes of neighbouring devices that lie along this block."""


def exchange(spec: StepSpec, planes: list[jax.Array], reads: list[tuple[int, ...]]) -> list[Edges]:
    """Per plane the lanes next to this block; zero off the wafer, none on a single device.

    Args:
      spec: Static part.
      planes: [n] of any types.
      reads: Per plane, the directions in which its neighbours are looked at.
    """
    edges: list[Edges] = [{} for _ in planes]
    if spec.blocks is not None:
        for d in (N, E, S, W):
            wanted = [k for k, directions in enumerate(reads) if d in directions]
            if wanted and spec.blocks.devices[_axis(d)] > 1:
                arrived = _from_neighbour(spec, [planes[k] for k in wanted], d)
                for k, lanes in zip(wanted, arrived, strict=True):
                    edges[k][d] = lanes
    return edges


def _axis(direction: int) -> int:
    return 0 if direction in (N, S) else 1


def _from_neighbour(spec: StepSpec, planes: list[jax.Array], direction: int) -> list[jax.Array]:
    """The facing edges of the device in a direction, all in one permute."""
    assert spec.blocks is not None
    count, step = spec.blocks.devices[_axis(direction)], 1 if direction in (N, W) else -1
    pairs = [(i, i + step) for i in range(count) if 0 <= i + step < count]
    edges = [_edge(spec, plane, OPPOSITE[direction]) for plane in planes]
    data = jnp.concatenate([_to_bytes(edge) for edge in edges])
    arrived = lax.ppermute(data, AXES[_axis(direction)], pairs)
    ends = list(accumulate(edge.size * edge.dtype.itemsize for edge in edges))
    return [
        _from_bytes(lax.slice_in_dim(arrived, start, end), edge.dtype)
        for start, end, edge in zip([0, *ends], ends, edges, strict=False)
    ]


def with_guards(spec: StepSpec, plane: jax.Array, edges: Edges) -> jax.Array:
    """Pad a plane [n] by a row on either side, and its ghost columns, with what lies there."""
    nothing = jnp.zeros(spec.row, plane.dtype)
    guarded = jnp.concatenate([edges.get(N, nothing), plane, edges.get(S, nothing)])
    if E not in edges and W not in edges:
        return guarded
    rows, columns = spec.mesh
    blank = jnp.zeros(rows, plane.dtype)
    east, west = edges.get(E, blank), edges.get(W, blank)
    # The lane before a row's first is the last ghost of the row above, so west lies a row higher.
    between = jnp.zeros((rows + 2, spec.row - columns - 2), plane.dtype)
    ghosts = jnp.concatenate(
        [jnp.pad(east, (1, 1))[:, None], between, jnp.pad(west, (0, 2))[:, None]], axis=1
    )
    grid = guarded.reshape(rows + 2, spec.row)
    return lax.dynamic_update_slice(grid, ghosts, (0, columns)).reshape(-1)


def _edge(spec: StepSpec, plane: jax.Array, side: int) -> jax.Array:
    """The outermost lanes of a block on one side."""
    rows, columns = spec.mesh
    if side in (N, S):
        first = 0 if side == N else (rows - 1) * spec.row
        return lax.slice_in_dim(plane, first, first + spec.row)
    first = 0 if side == W else columns - 1
    return lax.slice(plane, (first,), (first + (rows - 1) * spec.row + 1,), (spec.row,))


def _to_bytes(edge: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(edge, jnp.uint8).reshape(-1)


def _from_bytes(data: jax.Array, dtype) -> jax.Array:
    size = jnp.dtype(dtype).itemsize
    return lax.bitcast_convert_type(data.reshape(-1, size) if size > 1 else data, dtype)


def without_ghosts(spec: StepSpec, plane: jax.Array) -> jax.Array:
    """[n]: 0 on ghosts that lie beside PEs which send to the next device."""
    if spec.blocks is None or spec.blocks.devices[1] == 1:
        return plane
    column = jnp.arange(spec.lanes, dtype=jnp.int32) % spec.row
    return jnp.where(column < spec.mesh[1], plane, jnp.zeros_like(plane))


def agree(
    spec: StepSpec, cycle: jax.Array, starved: jax.Array | None
) -> tuple[jax.Array, jax.Array | None]:
    """The earliest cycle [] int32, and whether any device has starved threads, in one reduction."""
    if spec.blocks is None:
        return cycle, starved
    if starved is None:
        return lax.pmin(cycle, AXES), None
    first, fed = lax.pmin(jnp.stack([cycle, jnp.where(starved, 0, 1)]), AXES)
    return first, fed == 0


def pe_numbers(spec: StepSpec) -> jax.Array:
    """[n] uint32: y * X + x on the whole wafer; ghosts have any."""
    if spec.blocks is None:
        return pe_of_lane(spec.mesh)
    top, left = (
        lax.axis_index(axis).astype(jnp.uint32) * jnp.uint32(size)
        for axis, size in zip(AXES, spec.mesh, strict=True)
    )
    lane = jnp.arange(spec.lanes, dtype=jnp.uint32)
    return (top + lane // spec.row) * spec.blocks.wafer[1] + left + lane % spec.row
