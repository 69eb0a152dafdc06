"""Executables are kept, but not without end."""

import jax
import jax.numpy as jnp
import numpy as np

import wafer_jax as wj
from wafer_jax import compilation


def cycles(length: int) -> int:
    return wj.run(wj.reduce.chain(wj.hardware("toy", (1, length)), words=2), values="none").cycles


def test_a_step_is_compiled_once():
    cycles(3)
    count = len(compilation._compiled)
    cycles(3)
    assert len(compilation._compiled) == count


def test_old_executables_are_let_go(monkeypatch):
    expected = cycles(3)
    monkeypatch.setattr(compilation, "_mappings", lambda: compilation.MAX_MAPPINGS + 1)
    cycles(4)
    assert len(compilation._compiled) == 1
    assert cycles(3) == expected


def test_the_compiler_adds_up_as_it_should():
    """The installed jaxlib is none that loses terms of fused sums (jax-ml/jax issue 39103)."""
    rows = jnp.arange(32_769, dtype=jnp.float32)
    x = jnp.stack((rows, jnp.zeros_like(rows), jnp.zeros_like(rows)), axis=1)
    squares = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)))(x)
    np.testing.assert_array_equal(squares, np.arange(32_769, dtype=np.float32) ** 2)
