"""Shared by the tests of collectives: a program's values do not depend on when its PEs run."""

from collections.abc import Iterator, Mapping

import numpy as np
from lines_harness import Oracle, read_tile

from wafer_jax.jitter import Jitter
from wafer_jax.program import Program

KEYS = range(20)


def outputs_under_jitter(program: Program, tiles: Mapping[str, np.ndarray]) -> Iterator[np.ndarray]:
    """The output [..., Y, X] under each key, NaN where a PE has none; finish times must differ."""
    (name,), (height, width) = program.outputs, program.hw.mesh
    tiles = {key: np.asarray(tile) for key, tile in tiles.items()}
    finished = set()
    for key in KEYS:
        oracle = Oracle(program, tiles, True, Jitter(key, 40, 11)).run()
        final = oracle.snapshot()
        assert final["halted"].all()
        assert not final["faults"].any()
        finished.add(int(final["ready_at"].max()))
        values = None
        for y, x in np.ndindex(height, width):
            if name in (owned := program.role_at(y, x).tiles):
                value = read_tile(oracle.pes[y, x].sram, owned[name])
                if values is None:
                    values = np.full((*value.shape, height, width), np.nan, value.dtype)
                values[..., y, x] = value
        assert values is not None
        yield values
    assert len(finished) > len(KEYS) // 2
