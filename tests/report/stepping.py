"""What PEs do, counted in plain NumPy from snapshots of every cycle."""

from itertools import pairwise

import numpy as np

import wafer_jax as wj
from wafer_jax.events import (
    Compute,
    Forward,
    Halt,
    Receive,
    Send,
    Wait,
    receive_color,
    send_color,
)
from wafer_jax.report.activity import COLOR_BITS, Activity
from wafer_jax.routes import capacities, sources


class Stepping:
    """A run without values, cycle by cycle.

    Attributes:
      snapshots: Of every executed cycle, and of the end.
      threads: [cycles, T, Y, X], code of every thread.
      left: [cycles, C, Y, X], 1 where a head left its router.
    """

    def __init__(self, program, jitter=None):
        self.program = program
        state = wj.initial_state(program, values=False, jitter=jitter)
        self.snapshots = [wj.snapshot(program, state)]
        while not bool(state.stuck):
            state = wj.step.step(program, state)
            self.snapshots.append(wj.snapshot(program, state))
        self.state = state
        self.capacity = capacities(program)[0][0, 0]
        self.busy = np.zeros((program.num_threads, *program.hw.mesh), int)
        codes, left = [], []
        for before, after in pairwise(self.snapshots):
            moved = self.passed(after) - self.passed(before)
            for cycle in range(before["now"], max(after["now"], before["now"])):
                codes.append(self.codes(before, after, cycle))
                left.append(moved if cycle == before["now"] else 0 * moved)
        end = self.snapshots[-1]
        for cycle in range(end["now"], self.busy.max(initial=0)):
            codes.append(self.codes(end, end, cycle))
            left.append(np.zeros_like(left[0]))
        self.threads, self.left = np.array(codes), np.array(left)

    def passed(self, snap):
        """[C, Y, X]: words that have left each router since the start."""
        source, held = sources(self.program.rx, self.program.tx, snap["router_total"])
        flat = snap["sent"].reshape(len(source), -1)
        fed = np.take_along_axis(flat, np.maximum(source, 0).reshape(flat.shape), 1)
        return np.where(source >= 0, fed.reshape(source.shape) - held, 0)

    def codes(self, before, after, cycle):
        out = np.zeros_like(self.busy)
        for t, y, x in np.ndindex(out.shape):
            activity, color = self.activity(before, after, cycle, t, y, x)
            index = 0 if color is None else self.program.colors.index(color)
            out[t, y, x] = activity << COLOR_BITS | index
        return out

    def activity(self, before, after, cycle, t, y, x):
        events = self.program.role_at(y, x).threads
        event = events[t][before["pc"][t, y, x]] if t < len(events) else Halt()

        def grew(key, color):
            c = self.program.colors.index(color)
            return after[key][c, y, x] > before[key][c, y, x]

        match event:
            case Compute(cycles=cycles) if self.went_on(before, after, t, y, x):
                self.busy[t, y, x] = before["now"] + cycles
            case Send(color=c) if grew("sent", c):
                return Activity.SENDING, c
            case Receive(color=c) if grew("received", c):
                return Activity.RECEIVING, c
            case Forward(color_in=c) if grew("received", c):
                return Activity.FORWARDING, c
        if self.busy[t, y, x] > cycle:
            return Activity.COMPUTING, None
        if isinstance(event, Halt):
            return Activity.HALTED, None
        if before["ready_at"][t, y, x] > cycle:
            return Activity.STARTING, None
        color = receive_color(event)
        if color is not None:
            c = self.program.colors.index(color)
            if before["input_ready"][c, y, x] == 0:
                return Activity.NEEDS_WORD, color
        color = send_color(event)
        if color is not None:
            c = self.program.colors.index(color)
            if before["router_total"][c, y, x] >= self.capacity[c, y, x]:
                return Activity.NEEDS_ROOM, color
        if isinstance(event, Wait) and before["semaphores"][event.semaphore, y, x] <= 0:
            return Activity.NEEDS_SIGNAL, None
        if color is None and self.went_on(before, after, t, y, x):
            return Activity.CONTROL, None
        return Activity.NEEDS_SLOT, None

    @staticmethod
    def went_on(before, after, t, y, x):
        return any(before[k][t, y, x] != after[k][t, y, x] for k in ("pc", "ready_at"))
