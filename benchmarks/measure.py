"""A program with its compiled step, run a few times: speed, compile time and memory."""

import resource
import time

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax import Jitter, Program, Result
from wafer_jax.diagnosis import diagnose
from wafer_jax.mesh_state import WaferState, initial_state, lowered
from wafer_jax.step import NEVER, advance

LIMITS = (jnp.int32(NEVER), jnp.int32(NEVER))


class Case:
    """Compiled once without a cache on disk; every `run` starts anew and is timed."""

    def __init__(
        self,
        program: Program,
        tiles: dict[str, np.ndarray] | None = None,
        jitter: Jitter | None = None,
        packet_words: int = 1,
    ) -> None:
        self.program, self.tiles = program, tiles
        self.options = {"jitter": jitter, "packet_words": packet_words}
        self.run_s: list[float] = []
        self.peak_bytes = 0
        state = self._start()
        spec, self.code = lowered(program, state)
        began = time.perf_counter()
        self.step = advance.lower(spec, self.code, state, *LIMITS).compile()
        self.compile_s = time.perf_counter() - began
        self.state_bytes = _bytes(state)
        self.control_bytes = _bytes(self.code) + _bytes(state) - _bytes(state.memory)

    def _start(self) -> WaferState:
        return initial_state(
            self.program, self.tiles, values=self.tiles is not None, **self.options
        )

    def run(self) -> Result:
        """Run from the start until nothing can happen any more; no faults."""
        state = jax.block_until_ready(self._start())
        began = time.perf_counter()
        state = jax.block_until_ready(self.step(self.code, state, *LIMITS))
        self.run_s.append(time.perf_counter() - began)
        self.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        result = Result(
            program=self.program,
            state=state,
            diagnosis=diagnose(self.program, state),
            run_s=self.run_s[-1],
            compile_s=self.compile_s,
        )
        return result.raise_on_fault()

    def report(self, result: Result) -> dict:
        """Facts of the fastest run, and of the step's memory."""
        pes, memory = self.program.hw.num_pes, self.step.memory_analysis()
        assert memory is not None, "this backend does not tell its memory"
        return {
            "program": self.program.name,
            "mesh": list(self.program.hw.mesh),
            "values": self.tiles is not None,
            "cycles": result.cycles,
            "pe_cycles_per_s": pes * result.cycles / min(self.run_s),
            "run_s": min(self.run_s),
            "compile_s": self.compile_s,
            "control_bytes_per_pe": self.control_bytes / pes,
            "state_bytes": self.state_bytes,
            "aliased_bytes": memory.alias_size_in_bytes,
            "temporary_bytes": memory.temp_size_in_bytes,
            "peak_bytes": self.peak_bytes,
        }


def measure(case: Case, repeats: int) -> tuple[Result, dict]:
    """The last result, and the report of the fastest of ``repeats`` runs."""
    for _ in range(repeats - 1):
        case.run()
    result = case.run()
    return result, case.report(result)


def _bytes(tree) -> int:
    return sum(a.nbytes for a in jax.tree.leaves(tree))
