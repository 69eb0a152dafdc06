"""Collectives whose own tests know nothing of jitter: the same values under twenty keys."""

import jax.numpy as jnp
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import integers, toy

from wafer_jax.collectives import broadcast, gemv, reduce_two_phase
from wafer_jax.collectives.tiles import tile_matrix, tile_vector, untile_vector


@pytest.mark.parametrize(("axis", "mesh"), [("x", (1, 4)), ("y", (3, 1))])
def test_broadcast_from_every_place(axis, mesh):
    hw, x = toy(mesh), integers(2, *mesh)
    for root in range(max(mesh)):
        program = broadcast.program(hw, 2, axis, root)
        for values in outputs_under_jitter(program, {"x": x}):
            assert (values == broadcast.apply(jnp.asarray(x), axis, root)).all()


@pytest.mark.parametrize("group", [2, 3])
def test_two_phase_reduce(group):
    x = integers(3, 2, 8)
    program = reduce_two_phase.program(toy((2, 8)), 3, group)
    for values in outputs_under_jitter(program, {"x": x}):
        assert (values[..., 0] == x.sum(axis=-1)).all()


def test_gemv():
    mesh, w, x = (3, 2), integers(7, 5, seed=1), integers(7, seed=2)
    tiles = {"x": tile_vector(x, mesh), "w": tile_matrix(w, mesh)}
    program = gemv.program(toy(mesh), 7, 5)
    for values in outputs_under_jitter(program, tiles):
        assert (untile_vector(values, 5, "x") == x @ w).all()
