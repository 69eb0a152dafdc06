"""Tiled star stencil: values, cycles on the fabric, published runs of the vendor's simulator."""

import numpy as np
import pytest
from lines_harness import integers, machines, normal, oracle_cycles, oracle_tile, same_bits, toy

from wafer_jax import Jitter, WaferError, hardware, replicate, run
from wafer_jax.collectives import stencil, stencil_cost

TILES = [
    ((3, 4), 3, 2, 2, 3),
    ((1, 1), 1, 1, 1, 2),
    ((1, 3), 1, 2, 2, 2),
    ((2, 1), 3, 1, 3, 1),
    ((5, 2), 2, 3, 1, 3),
    ((4, 5), 1, 1, 1, 2),
]
"""Mesh, tile, radius, iterations."""

SIMULATED = [
    ("wse2", (1, 1), 1, (5, 5), 127),
    ("wse3", (1, 1), 1, (5, 5), 157),
    ("wse2", (2, 2), 1, (5, 5), 141),
    ("wse3", (2, 2), 1, (3, 3), 176),
    ("wse2", (5, 5), 1, (5, 5), 286),
    ("wse3", (5, 5), 1, (5, 5), 191),
    ("wse3", (10, 10), 1, (5, 5), 558),
    ("wse2", (5, 5), 2, (5, 5), 593),
    ("wse3", (5, 5), 2, (5, 5), 635),
    ("wse3", (20, 20), 2, (5, 5), 4572),
    ("wse3", (14, 86), 2, (5, 5), 16696),
    ("wse3", (5, 5), 3, (5, 5), 886),
    ("wse2", (4, 14), 4, (3, 5), 1809),
    ("wse3", (10, 10), 6, (5, 5), 4179),
    ("wse2", (7, 7), 7, (3, 3), 2804),
    ("wse3", (7, 7), 7, (5, 5), 2783),
]
"""Preset, tile (h, w), radius, mesh, cycles per iteration (Jorineg/cerebras @911a327)."""


def dense(x: np.ndarray, weights: np.ndarray, iterations: int) -> np.ndarray:
    """The grid as one array, shifted and added."""
    height, width, rows, columns = x.shape
    grid, radius = x.transpose(2, 0, 3, 1).reshape(rows * height, -1), len(weights) - 1
    for _ in range(iterations):
        (h, w), wide = grid.shape, np.pad(grid, radius)
        here = lambda dy, dx, wide=wide, h=h, w=w: wide[radius + dy :, radius + dx :][:h, :w]
        taps = [weights[0] * here(0, 0)]
        for d in range(1, radius + 1):
            taps += [weights[d] * here(*at) for at in ((d, 0), (-d, 0), (0, d), (0, -d))]
        grid = np.sum(taps, axis=0, dtype=np.float32)
    return grid.reshape(rows, height, columns, width).transpose(1, 3, 0, 2)


def inputs(mesh, height, width, radius, make=integers):
    weights = make(radius + 1, seed=1)
    return {
        "x": make(height, width, *mesh),
        "weights": np.broadcast_to(weights[:, None, None], (radius + 1, *mesh)),
    }


@pytest.mark.parametrize(("mesh", "height", "width", "radius", "iterations"), TILES)
def test_fabric_and_bulk_level_give_the_dense_grid(mesh, height, width, radius, iterations):
    tiles = inputs(mesh, height, width, radius)
    weights = tiles["weights"][:, 0, 0]
    expected = dense(tiles["x"], weights, iterations)
    assert same_bits(stencil.apply(tiles["x"], weights, iterations), expected)
    hw = toy(mesh, sram_bytes=8192)
    program = stencil.program(hw, height, width, radius, iterations)
    assert same_bits(oracle_tile(program, tiles, "x"), expected)


def test_executor_gives_the_bits_of_the_bulk_level_under_every_jitter():
    mesh, count = (3, 4), 20
    tiles = inputs(mesh, 3, 2, 2, normal)
    expected = stencil.apply(tiles["x"], tiles["weights"][:, 0, 0], 2)
    program = stencil.program(toy(mesh, sram_bytes=8192), 3, 2, 2, 2)
    many = replicate(program, count)
    walled = {k: np.concatenate([v, 0 * v[..., :1, :]], axis=-2) for k, v in tiles.items()}
    stacked = {k: np.concatenate([v] * count, axis=-2)[..., :-1, :] for k, v in walled.items()}
    jittered = run(many, stacked, jitter=Jitter(0, 30, 10)).raise_on_fault()
    for i in range(count):
        first = i * (mesh[0] + 1)
        assert same_bits(jittered.values[..., first : first + mesh[0], :], expected)


@pytest.mark.parametrize("mesh", [(5, 5), (2, 2), (1, 4), (1, 3), (3, 3), (6, 1)])
def test_cycles_equal_the_cost_up_to_set_ups(mesh):
    for hw in dict.fromkeys(hw.replace(sram_bytes=8192) for hw, _, _ in machines([mesh])):
        for height, width, radius in ((1, 1, 1), (4, 5, 1), (5, 4, 2)):
            for iterations in (1, 4, 7):
                arguments = (hw, height, width, radius, iterations)
                off = oracle_cycles(stencil.program(*arguments)) - stencil.cost(*arguments)
                assert abs(off) <= iterations * (4 * hw.stream_setup_cycles + 2), arguments
                alike = mesh in ((2, 2), (6, 1)) or (mesh == (5, 5) and iterations == 1)
                if alike and not hw.stream_setup_cycles and width > 1:
                    assert off == 0, arguments


@pytest.mark.parametrize(("preset", "tile", "radius", "mesh", "simulated"), SIMULATED)
def test_iterations_take_what_the_vendors_simulator_took(preset, tile, radius, mesh, simulated):
    hw = hardware(preset)
    cycles = stencil.published(hw, *tile, radius, mesh)
    assert cycles == pytest.approx(simulated, rel=0.1)
    waits = radius > 1 or min(tile) < 4 or preset == "wse2"
    four, two = (
        oracle_cycles(stencil.program(hw.replace(mesh=mesh), *tile, radius, n, waits))
        for n in (4, 2)
    )
    assert (four - two) / 2 == pytest.approx(cycles, rel=0.02)


def test_executor_agrees_with_the_published_iteration():
    hw = hardware("wse3", mesh=(5, 5))
    four, two = (run(stencil.program(hw, 5, 5, 2, n), values="none").cycles for n in (4, 2))
    assert (four - two) / 2 == stencil.published(hw, 5, 5, 2, (5, 5))


def test_operands_that_share_a_bank_are_counted():
    """Fast and slow tiles of radius 2: the centre alone, or the four taps at distance 2."""
    assert [stencil_cost.conflicts(n, n, 2) for n in (20, 40, 60, 64)] == [1] * 4
    assert [stencil_cost.conflicts(n, n, 2) for n in (10, 30, 50)] == [4] * 3


def test_colours_do_not_grow_with_the_mesh():
    meshes = [(4, 4), (9, 13)]
    assert [len(stencil.program(toy(mesh), 1, 1).colors) for mesh in meshes] == [8, 8]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: stencil.program(hw, 3, 1, 2), "tiles of 1 columns are narrower"),
        (lambda hw: stencil.cost(hw, 1, 3, 2), "tiles of 1 rows are narrower"),
        (lambda hw: stencil.program(hw, 0, 1), "all must be at least 1"),
        (lambda hw: stencil.program(hw, 1, 1, 1, 0), "0 iterations"),
        (lambda hw: stencil.apply(normal(2, 2), normal(2)), r"give \[h, w, Y, X\]"),
        (lambda hw: stencil.program(hw.replace(colors=4), 1, 1), "colour"),
        (lambda hw: stencil.program(hw, 40, 40), "bytes of SRAM"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((2, 3)))
