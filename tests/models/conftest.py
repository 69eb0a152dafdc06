"""The real weights, loaded once per test process."""

import pytest

from wafer_jax.models import checkpoints
from wafer_jax.models.dense import DenseModel


@pytest.fixture(scope="session")
def smollm2():
    return checkpoints.load("smollm2")


@pytest.fixture(scope="session")
def smollm2_dense(smollm2):
    return DenseModel.from_checkpoint(smollm2)
