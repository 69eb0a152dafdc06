"""A tiny model's own products on the fabric; SmolLM2's are in its own file."""

import dataclasses

from models.test_mesh_model import roomy, tiny
from wafer_jax.models.fabric_check import check_matmul, check_matvec
from wafer_jax.models.mesh_model import MeshModel


def test_values_and_cycles_are_equal():
    model = MeshModel(tiny(), roomy((2, 2)))
    matvec = check_matvec(model)
    assert not dataclasses.replace(matvec, cost_cycles=matvec.cost_cycles + 1).passes
    for check in (matvec, check_matmul(model, tokens=5)):
        assert check.passes, check
        assert check.max_magnitude > 1
        assert not dataclasses.replace(check, max_difference=float("nan")).passes
        assert not dataclasses.replace(check, cost_cycles=int(1.01 * check.cost_cycles)).passes
        assert not dataclasses.replace(check, faults=1).passes
