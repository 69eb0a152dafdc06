"""The fabric executor behind the oracle's interface: step, run, snapshot."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from wafer_jax.diagnosis import diagnose
from wafer_jax.execute import has_ended
from wafer_jax.jitter import Jitter
from wafer_jax.mesh_state import WaferState, initial_state, lowered
from wafer_jax.program import Program
from wafer_jax.snapshot import snapshot
from wafer_jax.step import advance
from wafer_jax.step_spec import StepSpec

FOREVER = 2_000_000_000
LOG_WORDS = 1024


class Machine:
    """`wafer_jax.step` with the interface of `Oracle`.

    ``roomy`` gives every program a payload log of one size, so that programs which differ in it
    alone share a compiled step.
    """

    def __init__(
        self,
        program: Program,
        tiles: Mapping[str, np.ndarray] | None = None,
        values: bool = True,
        jitter: Jitter | None = None,
        watchdog_cycles: int = 0,
        packet_words: int = 1,
        *,
        carry_all: bool = False,
        roomy: bool = False,
    ) -> None:
        self.program = program
        self.state = initial_state(
            program,
            tiles if values else None,
            values=values,
            jitter=jitter,
            watchdog_cycles=watchdog_cycles,
            packet_words=packet_words,
            carry_all=carry_all,
        )
        self.spec, self.code = lowered(program, self.state)
        if roomy and values:
            self.spec, self.state = _with_room(self.spec, self.state)
        self.ended = False

    def step(self) -> bool:
        """Execute one cycle; False when the machine is stuck, or a thread has starved."""
        self._advance(FOREVER, 1)
        return not has_ended(self.state)

    def run(self, max_cycles: int = FOREVER) -> "Machine":
        self._advance(max_cycles, FOREVER)
        return self.finish()

    def finish(self) -> "Machine":
        self.ended = True
        return self

    def snapshot(self) -> dict[str, Any]:
        """The state's planes; after `finish` with the fault bits of the end of a run."""
        out = snapshot(self.program, self.state)
        if self.ended:
            out["faults"] = diagnose(self.program, self.state).bits
        return out

    def _advance(self, until: int, steps: int) -> None:
        self.state = advance(self.spec, self.code, self.state, jnp.int32(until), jnp.int32(steps))


def _with_room(spec: StepSpec, state: WaferState) -> tuple[StepSpec, WaferState]:
    assert state.memory is not None
    assert spec.log_words <= LOG_WORDS
    spec = replace(spec, log_words=LOG_WORDS)
    log = jnp.zeros(LOG_WORDS + spec.lanes, state.memory.log.dtype)
    return spec, replace(state, memory=replace(state.memory, log=log))
