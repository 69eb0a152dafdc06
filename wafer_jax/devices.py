"""Where a run happens: one device, or several that hold a block of PEs each.

The results are the same, bit by bit. docs/devices.md shows the use.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from wafer_jax.blocks import (
    FLAT_FIELDS,
    SHARED_FIELDS,
    Blocks,
    field_name,
    from_blocks,
    row_lanes,
    to_blocks,
)
from wafer_jax.errors import WaferError
from wafer_jax.mesh_state import WaferState
from wafer_jax.step import advance
from wafer_jax.step.halo import AXES
from wafer_jax.step_spec import Code, StepSpec

Devices = int | tuple[int, int] | Sequence[jax.Device] | Mesh
"""A count, (rows, columns) of devices, the devices along y, or a mesh with axes y and x."""

EVERYWHERE = PartitionSpec()
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
    return _shard(spec, mesh, code)


def shard_state(spec: StepSpec, mesh: Mesh, state: WaferState) -> WaferState:
    """Lay a state out over devices; ``spec`` is that of a block."""
    return _shard(spec, mesh, state)


def gather_state(spec: StepSpec, state: WaferState) -> WaferState:
    """The inverse of `shard_state`: the state as a single device has it, on every process."""
    blocks = spec.blocks
    assert blocks is not None
    count = math.prod(blocks.devices)

    def gather(path, leaf: jax.Array) -> jax.Array:
        whole = _whole(leaf)
        if field_name(path) in SHARED_FIELDS:
            return jnp.asarray(whole)
        if field_name(path) in FLAT_FIELDS:
            parts = whole.reshape(count, -1, blocks.lanes)
            return jnp.asarray(from_blocks(blocks, parts).reshape(-1))
        parts = np.moveaxis(whole.reshape(*whole.shape[:-1], count, blocks.lanes), -2, 0)
        return jnp.asarray(from_blocks(blocks, parts))

    with in_host_memory():
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
    states = _partition(state)
    # Loops and conditionals inside a block differ between devices, and hold no communication.
    return jax.shard_map(
        partial(advance, spec),
        mesh=mesh,
        in_specs=(_partition(code), states, EVERYWHERE, EVERYWHERE),
        out_specs=states,
        check_vma=False,
    )(code, state, until, max_steps)


@dataclass(frozen=True)
class Place:
    """The devices of a run.

    Attributes:
      advance: Jitted, of (*static, code, state, until, max_steps); the state is donated.
      static: Its static arguments.
      code: The lowered program, laid out.
      state: The state to begin with, laid out.
      scalar: Puts a number where ``advance`` wants it.
      agreed: Of the numbers that processes have, one for all of them.
      gather: The state as a single device has it.
    """

    advance: Callable
    static: tuple
    code: Code
    state: WaferState
    scalar: Callable[[int], jax.Array]
    agreed: Callable[[int], int]
    gather: Callable[[WaferState], WaferState]


def place(spec: StepSpec, code: Code, state: WaferState, devices: Devices | None) -> Place:
    """Lay a run out over devices, by default over the one that JAX chooses.

    Raises:
      WaferError: Devices that do not exist, or more than the wafer can be cut for.
    """
    if devices is None:
        return Place(advance, (spec,), code, state, jnp.int32, _same, _same)
    mesh = device_mesh(devices)
    if mesh.size == 1:
        put = partial(jax.device_put, device=mesh.devices.flat[0])
        scalar = lambda n: put(np.int32(n))
        return Place(advance, (spec,), put(code), put(state), scalar, _same, _same)
    if spec.values and len(spec.carried) < spec.colors:
        raise WaferError(
            "the state keeps payloads where one device finds them: start it for several devices"
        )
    block = cut(spec, mesh)
    return Place(
        advance=advance_blocks,
        static=(block, mesh),
        code=shard_code(block, mesh, code),
        state=shard_state(block, mesh, state),
        scalar=lambda n: everywhere(mesh, np.int32(n)),
        agreed=_of_first_process if mesh.is_multi_process else _same,
        gather=partial(gather_state, block),
    )


def are_several(devices: Devices | None) -> bool:
    """Whether a run there is cut into blocks, so that payloads have to travel."""
    return devices is not None and device_mesh(devices).size > 1


def in_host_memory() -> AbstractContextManager:
    """While it lasts, new arrays lie there: no device of several need hold the whole wafer."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX was told to use another platform alone
        return nullcontext()


def _same(value):
    return value


def _of_first_process(number: int) -> int:
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def everywhere(mesh: Mesh, value: jax.Array | np.generic) -> jax.Array:
    """The same array on every device."""
    host = np.asarray(value)
    return jax.make_array_from_callback(
        host.shape, NamedSharding(mesh, EVERYWHERE), lambda index: host[index]
    )


def _partition(tree: Tree) -> Tree:
    """Partition specs: the last axis over all devices, rows of devices first."""

    def partition(path, leaf) -> PartitionSpec:
        if field_name(path) in SHARED_FIELDS:
            return EVERYWHERE
        return PartitionSpec(*[None] * (leaf.ndim - 1), AXES)

    return jax.tree_util.tree_map_with_path(partition, tree)


def _shard(spec: StepSpec, mesh: Mesh, tree: Tree) -> Tree:
    blocks = spec.blocks
    assert blocks is not None

    def shard(path, leaf: jax.Array, partition: PartitionSpec) -> jax.Array:
        name, host = field_name(path), np.asarray(leaf)
        if name in SHARED_FIELDS:
            return everywhere(mesh, leaf)
        if name in FLAT_FIELDS:
            lanes = blocks.wafer[0] * row_lanes(blocks.wafer[1])
            host = to_blocks(blocks, host.reshape(-1, lanes)).reshape(-1)
        else:
            parts = np.moveaxis(to_blocks(blocks, host), 0, -2)
            host = parts.reshape(*host.shape[:-1], -1)
        return jax.make_array_from_callback(
            host.shape, NamedSharding(mesh, partition), lambda index: host[index]
        )

    return jax.tree_util.tree_map_with_path(shard, tree, _partition(tree))
