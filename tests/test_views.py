"""A run step by step: queues and threads as tables."""

import numpy as np

import wafer_jax as wj


def test_a_word_travels_through_the_queues():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 3)), "travel")
    x = b.tile("x", (1,))
    b.path(5, (0, 0), (0, 2))
    b.role("source", at=(0, 0)).thread().send(5, x)
    b.role("sink", at=(0, 2)).thread().receive(5, x)
    program = b.build(inputs=["x"], outputs=["x"])
    state = wj.initial_state(program, {"x": np.ones((1, 1, 3), np.float32)})
    assert wj.queues(program, state).empty
    assert list(wj.threads(program, state)["event"].str.split().str[0]) == ["SEND", "RECEIVE"]

    # One cycle to issue, one on the ramp, one per hop, one on the ramp.
    seen = []
    while not bool(state.stuck):
        state = wj.step.step(program, state)
        table = wj.queues(program, state)
        seen += [(int(state.now), *row) for row in table.itertuples(index=False, name=None)]
    assert seen == [
        (1, 0, 0, "router", 5, 1, 0),
        (2, 0, 0, "router", 5, 1, 1),
        (3, 0, 1, "router", 5, 1, 1),
        (4, 0, 2, "router", 5, 1, 1),
        (5, 0, 2, "input", 5, 1, 1),
    ]
    assert wj.threads(program, state).empty
