"""Executables are kept, but not without end."""

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
