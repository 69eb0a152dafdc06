"""Settings that every test shares: strict promotion, warnings as errors, a compile cache."""

import jax
import pytest

from wafer_jax import compilation

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 4)  # for tests/fabric/test_devices.py


@pytest.fixture(autouse=True, scope="module")
def room_for_executables():
    """Let go of the executables of jitted functions before there are too many."""
    yield
    if compilation._mappings() > compilation.MAX_MAPPINGS // 2:
        compilation._compiled.clear()
        jax.clear_caches()
