"""Programs that the benchmark runs."""

import numpy as np

from wafer_jax import RAMP, E, N, Program, ProgramBuilder, S, W, hardware
from wafer_jax.collectives import gemv, reduce_chain
from wafer_jax.hardware import OPPOSITE, HardwareSpec


def machine(height: int, width: int) -> HardwareSpec:
    """A WSE-2 with the given mesh, however large."""
    return hardware("wse2").replace(device_mesh=(height, width), mesh=(height, width))


def four_streams(height: int, width: int, words: int) -> Program:
    """Every edge PE streams across the mesh to the opposite edge: four colours at full rate."""
    builder = ProgramBuilder(machine(height, width), f"four streams, {words} words")
    outgoing = builder.tile("x", (words,))
    incoming = builder.tile("y", (words,))
    y, x = np.mgrid[0:height, 0:width]
    edges = {N: y == 0, E: x == width - 1, S: y == height - 1, W: x == 0}
    colors = {E: 0, W: 1, S: 2, N: 3}
    for direction, color in colors.items():
        first, last = edges[OPPOSITE[direction]], edges[direction]
        builder.route_where(color, first, RAMP, direction)
        builder.route_where(color, last, OPPOSITE[direction], RAMP)
        builder.route_where(color, ~first & ~last, OPPOSITE[direction], direction)
    kinds = sum(edges[d].astype(int) << d for d in range(4))
    for kind in np.unique(kinds[kinds > 0]):
        thread = builder.role(f"edges {kind:04b}", where=kinds == kind).thread()
        on = [d for d in range(4) if kind >> d & 1]
        for d in on:
            thread.send(colors[OPPOSITE[d]], outgoing)
        for d in on:
            thread.receive(colors[d], incoming)
    return builder.build(inputs=["x"], outputs=["y"])


def chain_reduce(height: int, width: int, words: int) -> Program:
    """Every row reduces to its first PE."""
    return reduce_chain.program(machine(height, width), words=words)


def matrix_vector(height: int, width: int, words: int) -> Program:
    """MeshGEMV with ``words`` x ``words`` float32 on every PE, summed along the columns."""
    return gemv.program(machine(height, width), rows=words * height, cols=words * width)
