"""Jitter and replicas: what a correct program computes does not depend on when its PEs run."""

import jax.numpy as jnp
import numpy as np
import pytest
from machine import Machine
from oracle import Oracle
from random_families import FAMILIES, REGISTER_FAMILIES
from random_programs import random_program
from test_against_oracle import compare_end

from wafer_jax import hardware
from wafer_jax.collectives import allreduce_ktree, gemm, reduce_chain
from wafer_jax.errors import WaferError
from wafer_jax.jitter import Jitter, replicate
from wafer_jax.mesh_state import unpack

COUNT = 3


def stacked(tiles, count=COUNT):
    """[..., Y, X] tiles for ``count`` replicas, [..., count * (Y + 1) - 1, X]."""

    def stack(tile):
        walled = np.concatenate([tile, np.zeros_like(tile[..., :1, :])], axis=-2)
        return np.concatenate([walled] * count, axis=-2)[..., :-1, :]

    return {name: stack(np.asarray(tile)) for name, tile in tiles.items()}


def replicas(snapshot, height, count=COUNT):
    """The state of each replica: its rows of every plane."""
    planes = {k: v for k, v in snapshot.items() if k != "now"}
    rows = [slice(i * (height + 1), i * (height + 1) + height) for i in range(count)]
    return [{k: v[..., r, :] for k, v in planes.items()} for r in rows]


def equal(one, other):
    return all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    ("families", "seed"),
    [
        (REGISTER_FAMILIES, 11),
        pytest.param(FAMILIES, 13, marks=pytest.mark.slow),
        pytest.param(REGISTER_FAMILIES, 19, marks=pytest.mark.slow),
    ],
)
def test_replicas_of_random_programs(families, seed):
    program, tiles = random_program(seed, families)
    many, loaded = replicate(program, COUNT), stacked(tiles)
    height = program.hw.mesh[0]
    assert many.hw.mesh == (COUNT * (height + 1) - 1, program.hw.mesh[1])
    for key in range(3):
        compare_end(many, loaded, True, Jitter(key, 20, 10))
    ends = replicas(Oracle(many, loaded, True, Jitter(0, 20, 10)).run().snapshot(), height)
    assert not equal(ends[0], ends[1])


@pytest.mark.parametrize(("families", "seed"), [(FAMILIES, 23), (REGISTER_FAMILIES, 6)])
def test_without_jitter_all_replicas_do_the_same(families, seed):
    program, tiles = random_program(seed, families)
    alone = Oracle(program, tiles).run().snapshot()
    many = Machine(replicate(program, COUNT), stacked(tiles)).run().snapshot()
    height = program.hw.mesh[0]
    for end in replicas(many, height):
        assert equal({k: v for k, v in alone.items() if k in end}, end)
    walls = np.arange(many["pc"].shape[-2]) % (height + 1) == height
    assert many["halted"][..., walls, :].all()
    assert not any(many[key][..., walls, :].any() for key in ("ready_at", "sent", "faults"))


def test_one_replica_is_the_program_itself_and_none_is_refused():
    program, _ = random_program(6, REGISTER_FAMILIES)
    one = replicate(program, 1)
    assert np.array_equal(one.rx, program.rx)
    assert one.hw.mesh == program.hw.mesh
    with pytest.raises(WaferError, match="1"):
        replicate(program, 0)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda p: replicate(p, "2"), "the number of replicas is '2': give a whole number"),  # pyright: ignore[reportArgumentType]
        (lambda p: replicate(p, 10**12), r"mesh = \d+ is not in 1 .. 16384"),
        (lambda p: Jitter("1"), "jitter key is '1': give a whole number"),  # pyright: ignore[reportArgumentType]
        (lambda p: Jitter(1, 2.5), "jitter start_cycles is 2.5"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_mistakes_are_named(mistake, message):
    with pytest.raises(WaferError, match=message):
        mistake(_chain()[0])


def _chain():
    hw = hardware("toy", (1, 6))
    return reduce_chain.program(hw, 5), {"x": _integers(5, 1, 6)}


def _ktree():
    hw = hardware("toy", (2, 7))
    return allreduce_ktree.program(hw, 4, k=2), {"x": _integers(4, 2, 7)}


def _gemm():
    hw, (m, k, n) = hardware("toy", (3, 3)), (5, 7, 4)
    operands = jnp.asarray(_integers(m, k)), jnp.asarray(_integers(k, n))
    a, b = (np.asarray(tile) for tile in gemm.tile_operands(*operands, hw.mesh))
    return gemm.program(hw, m, k, n), gemm.load(a, b)


def _integers(*shape):
    return np.random.default_rng(7).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("make", [_chain, _ktree, _gemm])
def test_a_correct_program_gives_the_same_values_under_every_key(make):
    """Twenty keys at once are twenty replicas; with twenty more keys, four hundred stalls."""
    program, tiles = make()
    many, loaded, height = replicate(program, 20), stacked(tiles, 20), program.hw.mesh[0]
    alone = Machine(program, tiles).run().snapshot()
    finish = set()
    for key in range(20):
        end = Machine(many, loaded, True, Jitter(key, 30, 9)).run().snapshot()
        assert not end["faults"].any()
        for replica in replicas(end, height, 20):
            finish.add(int(replica["ready_at"].max()))
            for name in program.outputs:
                want, have = (unpack(program, s["sram"], name) for s in (alone, replica))
                assert np.array_equal(want, have, equal_nan=True)
    assert len(finish) > 20
