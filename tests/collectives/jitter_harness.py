"""Shared by the tests of collectives: a program's values do not depend on when its PEs run."""

import numpy as np

from wafer_jax import Jitter, replicate, run

COUNT = 20


def stacked(tile: np.ndarray) -> np.ndarray:
    """[..., Y, X] for every replica, [..., COUNT * (Y + 1) - 1, X]."""
    walled = np.concatenate([tile, np.zeros_like(tile[..., :1, :])], axis=-2)
    return np.concatenate([walled] * COUNT, axis=-2)[..., :-1, :]


def outputs_under_jitter(program, tiles) -> list[np.ndarray]:
    """The output of each of COUNT replicas, whose PEs start and stall at different times."""
    tiles = {name: stacked(np.asarray(tile)) for name, tile in tiles.items()}
    result = run(replicate(program, COUNT), tiles, jitter=Jitter(5, 40, 11)).raise_on_fault()
    height = program.hw.mesh[0]
    starts = range(0, COUNT * (height + 1), height + 1)
    return [np.asarray(result.values)[..., i : i + height, :] for i in starts]
