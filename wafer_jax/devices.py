"""One wafer on several devices: each holds a block of PEs, with the results of a single device."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from wafer_jax.blocks import Blocks, from_blocks, to_blocks
from wafer_jax.errors import WaferError
from wafer_jax.lowering import Code, StepSpec
from wafer_jax.mesh_state import WaferState
from wafer_jax.step import advance
from wafer_jax.step.halo import AXES

Devices = int | tuple[int, int] | Sequence[jax.Device] | Mesh
"""A count, (rows, columns) of devices, the devices along y, or a mesh with axes y and x."""

EVERYWHERE = PartitionSpec()
SHARED_FIELDS = frozenset({"now", "stuck", "jitter"})
"""Fields of the state that every device holds; the others have lanes last."""
WORD_MAJOR_FIELDS = frozenset({"sram"})
"""Fields flat over [words, lanes]."""
CODE_PLANES = frozenset({"routes", "unrouted", "role"})
"""Fields of the code that have lanes last; every device holds the others."""

Tree = TypeVar("Tree", Code, WaferState)


def device_mesh(devices: Devices) -> Mesh:
    """Arrange devices as (rows, columns) of blocks.

    Raises:
      WaferError: More devices than there are, or none.
    """
    if isinstance(devices, Mesh):
        if devices.axis_names != AXES:
            raise WaferError(f"the device mesh has axes {devices.axis_names}: name them {AXES}")
        return devices
    if isinstance(devices, int):
        devices = (devices, 1)
    if _is_shape(devices):
        rows, columns = devices
        there = jax.devices()
        if min(rows, columns) < 1 or rows * columns > len(there):
            raise WaferError(
                f"{rows} x {columns} devices asked for, there are {len(there)} "
                f"({there[0].platform}): ask for 1 to {len(there)}"
            )
        return Mesh(np.array(there[: rows * columns]).reshape(rows, columns), AXES)
    if not devices:
        raise WaferError("no devices: give at least one")
    return Mesh(np.array(devices).reshape(-1, 1), AXES)


def _is_shape(devices) -> bool:
    return isinstance(devices, tuple) and len(devices) == 2 and isinstance(devices[0], int)


def cut(spec: StepSpec, mesh: Mesh) -> StepSpec:
    """The step of one block.

    Raises:
      WaferError: More devices than rows or columns of PEs.
    """
    rows, columns = mesh.devices.shape
    height, width = spec.mesh
    if rows > height or columns > width:
        raise WaferError(
            f"{rows} x {columns} devices for {height} x {width} PEs: each needs a row and a column"
        )
    blocks = Blocks(devices=(rows, columns), wafer=spec.mesh)
    return replace(spec, mesh=blocks.mesh, blocks=blocks)


def shard_code(spec: StepSpec, mesh: Mesh, code: Code) -> Code:
    """Lay a lowered program out over devices; ``spec`` is that of a block."""
    return _shard(spec, mesh, code, _code_layout)


def shard_state(spec: StepSpec, mesh: Mesh, state: WaferState) -> WaferState:
    """Lay a state out over devices; ``spec`` is that of a block."""
    return _shard(spec, mesh, state, _state_layout)


def gather_state(spec: StepSpec, state: WaferState) -> WaferState:
    """The inverse of `shard_state`: the state as a single device has it, on every process."""

    def gather(path, leaf: jax.Array) -> jax.Array:
        blocks, where = spec.blocks, _state_layout(path)
        assert blocks is not None
        whole = _whole(leaf)
        if where == "shared":
            return jax.numpy.asarray(whole)
        count = math.prod(blocks.devices)
        if where == "words":
            return jax.numpy.asarray(
                from_blocks(blocks, whole.reshape(count, -1, blocks.lanes)).reshape(-1)
            )
        parts = np.moveaxis(whole.reshape(*whole.shape[:-1], count, blocks.lanes), -2, 0)
        return jax.numpy.asarray(from_blocks(blocks, parts))

    return jax.tree_util.tree_map_with_path(gather, state)


def _whole(leaf: jax.Array) -> np.ndarray:
    if leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(leaf)
    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def advance_blocks(
    spec: StepSpec,
    mesh: Mesh,
    code: Code,
    state: WaferState,
    until: jax.Array,
    max_steps: jax.Array,
) -> WaferState:
    """`step.advance` on every block at once; the state is donated."""
    codes, states = _partition(code, _code_layout), _partition(state, _state_layout)
    # Loops and conditionals inside a block differ between devices, and hold no communication.
    return jax.shard_map(
        partial(advance, spec),
        mesh=mesh,
        in_specs=(codes, states, EVERYWHERE, EVERYWHERE),
        out_specs=states,
        check_vma=False,
    )(code, state, until, max_steps)


def everywhere(mesh: Mesh, value: jax.Array) -> jax.Array:
    """The same array on every device."""
    host = np.asarray(value)
    return jax.make_array_from_callback(
        host.shape, NamedSharding(mesh, EVERYWHERE), lambda index: host[index]
    )


def _name(path) -> str:
    return next(key.name for key in reversed(path) if isinstance(key, jax.tree_util.GetAttrKey))


def _state_layout(path) -> str:
    name = _name(path)
    return "shared" if name in SHARED_FIELDS else "words" if name in WORD_MAJOR_FIELDS else "planes"


def _code_layout(path) -> str:
    return "planes" if _name(path) in CODE_PLANES else "shared"


def _partition(tree: Tree, layout: Callable) -> Tree:
    """Partition specs: the last axis over all devices, rows of devices first."""

    def partition(path, leaf) -> PartitionSpec:
        if layout(path) == "shared":
            return EVERYWHERE
        return PartitionSpec(*[None] * (leaf.ndim - 1), AXES)

    return jax.tree_util.tree_map_with_path(partition, tree)


def _shard(spec: StepSpec, mesh: Mesh, tree: Tree, layout: Callable) -> Tree:
    blocks = spec.blocks
    assert blocks is not None

    def shard(path, leaf: jax.Array, partition: PartitionSpec) -> jax.Array:
        where, host = layout(path), np.asarray(leaf)
        if where == "shared":
            return everywhere(mesh, leaf)
        if where == "words":
            lanes = blocks.wafer[0] * (blocks.wafer[1] + 1)
            host = to_blocks(blocks, host.reshape(-1, lanes)).reshape(-1)
        else:
            parts = np.moveaxis(to_blocks(blocks, host), 0, -2)
            host = parts.reshape(*host.shape[:-1], -1)
        return jax.make_array_from_callback(
            host.shape, NamedSharding(mesh, partition), lambda index: host[index]
        )

    return jax.tree_util.tree_map_with_path(shard, tree, _partition(tree, layout))
