"""INTERLEAVE: one ring, two hops at most, three colours, for any length of line."""

import numpy as np
import pytest
from lines_harness import Oracle, toy

from wafer_jax import ProgramBuilder, WaferError
from wafer_jax.collectives import interleave
from wafer_jax.hardware import RAMP


@pytest.mark.parametrize("length", range(1, 200))
def test_one_ring_of_at_most_two_hops(length):
    line = np.arange(length)
    target, source = interleave.send_to(length), interleave.receive_from(length)
    assert (source[target] == line).all()
    assert np.abs(target - line).max() <= 2
    seen, pe = [], 0
    for _ in range(length):
        seen.append(pe)
        pe = target[pe]
    assert pe == 0
    assert sorted(seen) == line.tolist()
    assert (interleave.order(length) == seen).all()
    assert (interleave.position(length)[seen] == line).all()


def test_the_published_example_of_five():
    assert interleave.send_to(5).tolist() == [2, 0, 4, 1, 3]
    assert interleave.receive_from(5).tolist() == [1, 3, 0, 4, 2]


def test_no_line_of_no_length():
    with pytest.raises(WaferError, match="at least 1"):
        interleave.send_to(0)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7, 8, 13, 24])
def test_a_pe_sends_receives_and_passes_on_different_colors(length):
    ring, target = interleave.ring(length), interleave.send_to(length)
    if length == 1:
        return
    assert (ring.send != ring.receive).all()
    for pe in range(length):
        between = range(min(pe, target[pe]) + 1, max(pe, target[pe]))
        for passed in between:
            assert ring.send[pe] not in (ring.send[passed], ring.receive[passed])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mesh", [(1, 2), (3, 3), (4, 1), (2, 5), (6, 3)])
def test_words_go_round_the_painted_rings(mesh, reverse):
    program = rotate_once(mesh, reverse)
    here = np.arange(mesh[0] * mesh[1], dtype=np.float32).reshape(mesh)
    oracle = Oracle(program, {"x": here[None], "y": here[None]}).run()
    assert not any(pe.faults for pe in oracle.pes.values())
    came_from = interleave.send_to if reverse else interleave.receive_from
    assert (oracle.tile("x")[0] == here[:, came_from(mesh[1])]).all()
    assert (oracle.tile("y")[0] == here[came_from(mesh[0])]).all()


def rotate_once(mesh: tuple[int, int], reverse: bool):
    """Every PE passes x along its row and y along its column, once."""
    builder = ProgramBuilder(toy(mesh))
    tiles = {"x": builder.tile("x", (1,)), "y": builder.tile("y", (1,))}
    moves = []
    for axis, length, first in (("x", mesh[1], 4), ("y", mesh[0], 9)):
        colors, ring = range(first, first + 3), interleave.ring(length)
        interleave.paint(builder, axis, colors, reverse=reverse)
        ends = (ring.receive, ring.send) if reverse else (ring.send, ring.receive)
        if length > 1:
            moves.append((axis, [[colors[c] for c in end] for end in ends]))
    for y, x in np.ndindex(*mesh):
        role = builder.role(f"{y} {x}", at=(y, x))
        for axis, (send, receive) in moves:
            at = x if axis == "x" else y
            role.thread(0).send(send[at], tiles[axis])
            role.thread(1).receive(receive[at], tiles[axis])
    return builder.build(inputs=["x", "y"])


def test_no_two_streams_share_a_link():
    program = rotate_once((7, 8), False)
    for direction in range(4):
        uses = (program.tx >> direction & 1).sum(axis=0)
        assert uses.max() == 1
    assert ((program.rx == RAMP).sum(axis=0) == 2).all()
