"""A model's own products on the fabric: values against the bulk level, cycles against the cost.

The output projection of the first layer, with its real weights as they lie on its region: for one
token as decode's MeshGEMV, for a prompt as prefill's MeshGEMM. What stands in for the outputs of
attention is drawn from a normal distribution.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.collectives import gemm, gemv
from wafer_jax.execute import run
from wafer_jax.hardware import HardwareSpec
from wafer_jax.models.attention import kinds_of
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.mesh_prefill import relay
from wafer_jax.models.packed_tiles import numbers
from wafer_jax.program import Program
from wafer_jax.result import Result

Progress = Callable[[int, float], None]
"""Called about once a second with (cycle, PE-cycles per second), as in `run`."""


ALIGNED_OFF = 0.001
"""Share of the cycles by which a product aligned on chip may miss its cost."""


@dataclass(frozen=True)
class FabricCheck:
    """One product at two levels.

    Attributes:
      name: What was multiplied.
      mesh: (Y, X) PEs.
      fabric_cycles: Cycles that the fabric took.
      cost_cycles: Cycles that the cost level says.
      max_difference: Largest difference between the values of fabric and bulk level.
      max_magnitude: Largest value.
      faults: PEs with a fault.
      run_s: Seconds of emulation, compilation apart.
      cycles_off: Share of the cost by which the cycles may miss it.
    """

    name: str
    mesh: tuple[int, int]
    fabric_cycles: int
    cost_cycles: int
    max_difference: float
    max_magnitude: float
    faults: int
    run_s: float
    cycles_off: float = 0.0

    @property
    def passes(self) -> bool:
        """Whether values are equal, cycles up to what `compute_shift_cost` lists, no faults."""
        off = abs(self.fabric_cycles - self.cost_cycles)
        return off <= self.cycles_off * self.cost_cycles and self.max_difference == 0 == self.faults


def check_matvec(
    model: MeshModel, *, seed: int = 0, progress: Progress | None = None
) -> FabricCheck:
    """Run layer 0's output projection of one token as MeshGEMV, reduced along x as in decode.

    Args:
      model: Weights, layout and machine.
      seed: Of the vector.
      progress: See `Progress`.
    """
    layout, hw = model.layout, model.hw
    (height, width), out = hw.mesh, numbers(model.weights.layers[0].attention["out"][0])
    rows = len(out)
    tiles = out.reshape(rows, width, height, -1)
    w = jnp.transpose(tiles, (0, 3, 2, 1))  # [q, e, Y, X]
    x = _normal((rows, 1, width), seed)
    x = jnp.broadcast_to(jnp.asarray(x), (rows, height, width))
    sizes = rows * width, layout.hidden_y * height
    program = gemv.program(hw, *sizes, k=model.k, axis="x")
    return _compare(
        f"layer 0, o_proj, MeshGEMV of {sizes[0]}x{sizes[1]}",
        program,
        run(program, {"x": np.asarray(x), "w": np.asarray(w)}, progress=progress),
        gemv.apply(x, w, k=model.k, axis="x"),
        gemv.cost(hw, *sizes, k=model.k, axis="x"),
    )


def check_matmul(
    model: MeshModel, *, tokens: int = 48, seed: int = 0, progress: Progress | None = None
) -> FabricCheck:
    """Run layer 0's output projection of a prompt as MeshGEMM, aligned on chip as in prefill.

    Args:
      model: Weights, layout and machine.
      tokens: Tokens of the prompt.
      seed: Of the activations.
      progress: See `Progress`.
    """
    hw = model.hw
    layer = jax.tree.map(lambda stack: stack[0], model.weights.layers[0])
    b = relay(layer, kinds_of(model.config)[0], model.layout).attention["out"]
    rows, cols, height, width = b.shape
    contracted = rows * height // width
    per_row = -(-tokens // height)
    a = _normal((per_row * height, contracted, width), seed)
    a[tokens:] = 0
    a = a.reshape(height, per_row, contracted, width).transpose(1, 2, 0, 3)
    sizes = tokens, rows * height, cols * width
    program = gemm.program(hw, *sizes, align="chip")
    return _compare(
        f"layer 0, o_proj, MeshGEMM of {sizes[0]}x{sizes[1]}x{sizes[2]}",
        program,
        run(program, gemm.load(a, np.asarray(b), align="chip"), progress=progress),
        gemm.apply(jnp.asarray(a), b),
        gemm.cost(hw, *sizes, align="chip"),
        ALIGNED_OFF,
    )


def _compare(
    name: str,
    program: Program,
    result: Result,
    bulk: jax.Array,
    cost_cycles: int,
    cycles_off: float = 0.0,
) -> FabricCheck:
    hw: HardwareSpec = program.hw
    values, expected = np.asarray(result.values), np.asarray(bulk)
    with np.errstate(invalid="ignore"):
        difference = np.abs(values - expected).max()
    return FabricCheck(
        name=name,
        mesh=hw.mesh,
        fabric_cycles=result.cycles,
        cost_cycles=cost_cycles,
        max_difference=float(difference),
        max_magnitude=float(np.abs(expected).max()),
        faults=int(np.count_nonzero(result.diagnosis.bits)),
        run_s=result.run_s,
        cycles_off=cycles_off,
    )


def _normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
