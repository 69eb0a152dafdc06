"""What a block of the wafer learns from the devices around it (`Blocks`).

Communication of one cycle: the lanes along each edge, before and after the routers decide, one
permute per direction and phase for all colours together; and one reduction to a scalar.
"""

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.hardware import OPPOSITE, E, N, S, W
from wafer_jax.jitter import pe_of_lane
from wafer_jax.lowering import StepSpec

AXES = ("y", "x")
"""Names of the device mesh's axes."""


def with_guards(
    spec: StepSpec, planes: list[jax.Array], reads: list[tuple[int, ...]]
) -> list[jax.Array]:
    """Pad planes [n] by a row on either side, with the neighbouring devices' lanes where needed.

    Args:
      spec: Static part; without ``blocks`` every guard is zero.
      planes: Of any types.
      reads: Per plane, the directions in which its neighbours are looked at.
    """
    if spec.blocks is None:
        return [_padded(plane, *(jnp.zeros(spec.row, plane.dtype),) * 2) for plane in planes]
    edges = {d: _exchange(spec, planes, reads, d) for d in (N, E, S, W)}
    return [
        _surround(spec, plane, {d: edge[k] for d, edge in edges.items() if k in edge})
        for k, plane in enumerate(planes)
    ]


def _padded(plane: jax.Array, north: jax.Array, south: jax.Array) -> jax.Array:
    return jnp.concatenate([north, plane, south])


def _exchange(
    spec: StepSpec, planes: list[jax.Array], reads: list[tuple[int, ...]], direction: int
) -> dict[int, jax.Array]:
    """Per plane that needs them, the lanes beyond this block's edge; zero off the wafer."""
    assert spec.blocks is not None
    axis = 0 if direction in (N, S) else 1
    count = spec.blocks.devices[axis]
    wanted = [k for k, directions in enumerate(reads) if direction in directions]
    if count == 1 or not wanted:
        return {}
    edges = [_edge(spec, planes[k], OPPOSITE[direction]) for k in wanted]
    step = 1 if direction in (N, W) else -1
    pairs = [(i, i + step) for i in range(count) if 0 <= i + step < count]
    arrived = lax.ppermute(jnp.concatenate([_to_bytes(e) for e in edges]), AXES[axis], pairs)
    out, start = {}, 0
    for k, edge in zip(wanted, edges, strict=True):
        size = edge.size * edge.dtype.itemsize
        out[k] = _from_bytes(lax.slice_in_dim(arrived, start, start + size), edge.dtype)
        start += size
    return out


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


def _surround(spec: StepSpec, plane: jax.Array, edges: dict[int, jax.Array]) -> jax.Array:
    """Pad a plane; columns of neighbours go to the two ghosts that lie between block rows."""
    nothing = jnp.zeros(spec.row, plane.dtype)
    guarded = _padded(plane, edges.get(N, nothing), edges.get(S, nothing))
    if E not in edges and W not in edges:
        return guarded
    rows, columns = spec.mesh
    blank = jnp.zeros(rows, plane.dtype)
    east, west = edges.get(E, blank), edges.get(W, blank)
    # The lane before a row's first is the last ghost of the row above, so west lies a row higher.
    ghosts = jnp.stack([jnp.pad(east, (1, 1)), jnp.pad(west, (0, 2))], axis=1)
    grid = guarded.reshape(rows + 2, spec.row)
    return lax.dynamic_update_slice(grid, ghosts, (0, columns)).reshape(-1)


def without_ghosts(spec: StepSpec, plane: jax.Array) -> jax.Array:
    """[n]: 0 on ghosts that lie beside PEs which send to the next device."""
    if spec.blocks is None or spec.blocks.devices[1] == 1:
        return plane
    column = jnp.arange(spec.lanes, dtype=jnp.int32) % spec.row
    return jnp.where(column < spec.mesh[1], plane, jnp.zeros_like(plane))


def earliest(spec: StepSpec, cycle: jax.Array) -> jax.Array:
    """[] int32: the smallest over all devices."""
    return cycle if spec.blocks is None else lax.pmin(cycle, AXES)


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
