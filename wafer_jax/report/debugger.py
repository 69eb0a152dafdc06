"""A program cycle by cycle: breakpoints, watched values, and why a thread does not go on."""

from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
import numpy as np

from wafer_jax.arguments import whole
from wafer_jax.compilation import compiled
from wafer_jax.diagnosis import diagnose, thread_status
from wafer_jax.errors import WaferError
from wafer_jax.events import Register, Relation
from wafer_jax.execute import MAX_CYCLES, RATE_PE_CYCLES_PER_S, Tiles, start
from wafer_jax.jitter import Jitter
from wafer_jax.lowering import lower
from wafer_jax.program import Program
from wafer_jax.report.breakpoints import (
    ANYWHERE,
    MAX_BREAKPOINTS,
    RELATIONS,
    Breakpoint,
    Kind,
    breakpoint_table,
)
from wafer_jax.report.session import CHANGES, Session, run_until, session
from wafer_jax.report.watches import (
    MAX_WATCHES,
    Source,
    Watched,
    tile_words,
    watch_table,
    watched_words,
)
from wafer_jax.result import Result
from wafer_jax.snapshot import snapshot
from wafer_jax.step import NEVER

if TYPE_CHECKING:
    import pandas as pd


class Debugger:
    """A program under a debugger; breakpoints are evaluated in the compiled loop.

    Every method that moves on stops at breakpoints and returns the debugger, whose text says
    where it stands and why.

    Args:
      program: Built by a collective or by `ProgramBuilder`.
      tiles: As for `run`.
      values: As for `run`.
      jitter: As for `run`.

    Raises:
      WaferError: As for `run`.
    """

    def __init__(
        self,
        program: Program,
        tiles: Tiles | None = None,
        *,
        values: Literal["full", "none"] = "full",
        jitter: Jitter | None = None,
    ) -> None:
        self.program = program
        self.state = start(program, tiles, values=values, jitter=jitter)
        self.spec, self.code = lower(program, values=values == "full", jitter=jitter is not None)
        self.stopped = "not started"
        self._points: list[Breakpoint] = []
        self._watches: list[Watched] = []
        self._rows: dict[int, np.ndarray] = {}

    def __repr__(self) -> str:
        return f"Debugger({self.program.name}, cycle {self.now}: {self.stopped})"

    # ---- moving on -------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The cycle about to happen."""
        return int(self.state.now)

    def step(self, n: int = 1) -> "Debugger":
        """Execute ``n`` cycles; those in which nothing can happen are skipped and not counted.

        Raises:
          WaferError: No whole number, or less than one.
        """
        if (steps := whole(n, "step: n")) < 1:
            raise WaferError(f"step({n}): at least one cycle")
        return self._advance(MAX_CYCLES, min(steps, NEVER))

    def run_to(self, cycle: int) -> "Debugger":
        """Run until ``now`` is at least ``cycle``.

        Raises:
          WaferError: A cycle in the past, too large, or no whole number.
        """
        cycle = whole(cycle, "run_to: cycle")
        if cycle > MAX_CYCLES:
            raise WaferError(f"run_to({cycle}): too large: at most {MAX_CYCLES:,}")
        if cycle < self.now:
            raise WaferError(f"run_to({cycle}): this is cycle {self.now}; make a new Debugger")
        return self._advance(cycle, NEVER)

    def run(self) -> "Debugger":
        """Run until a breakpoint is hit or nothing can happen any more."""
        return self._advance(MAX_CYCLES, NEVER)

    def _advance(self, until: int, max_steps: int) -> "Debugger":
        points, watches = breakpoint_table(self._points), watch_table(self._watches)
        chunk = max(16, int(RATE_PE_CYCLES_PER_S / max(self.spec.lanes, 1000)))
        height, width = self.program.hw.mesh
        call, _ = compiled(
            f"the debugger for {self.program.name!r} on {height}x{width} PEs", run_until,
            (self.spec,), self.code, session(self.spec, self.state, watches), points, watches,
            jnp.int32(0), jnp.int32(0),
        )  # fmt: skip
        left, hit = max_steps, np.zeros(MAX_BREAKPOINTS, bool)
        while not (hit.any() or bool(self.state.stuck) or self.now >= until or left == 0):
            limits = jnp.int32(until), jnp.int32(min(chunk, left))
            ran = call(self.code, session(self.spec, self.state, watches), points, watches, *limits)
            self.state, hit = ran.state, np.asarray(ran.hit)
            left -= int(ran.steps)
            self._keep_changes(ran)
        self.stopped = self._reason(hit)
        # The first word is what was asked for; the ones behind it would stop every cycle.
        once = (Kind.LEAVES, Kind.RECEIVED)
        self._points = [
            p for p, h in zip(self._points, hit[: len(self._points)], strict=True)
            if not (h and p.kind in once)
        ]  # fmt: skip
        return self

    def _reason(self, hit: np.ndarray) -> str:
        if reached := [p.text for p, h in zip(self._points, hit, strict=False) if h]:
            return "; ".join(reached)
        if not bool(self.state.stuck):
            return "stopped as asked"
        result = self.result
        return "deadlock" if result.diagnosis.waiting else "nothing can happen any more"

    # ---- breakpoints -----------------------------------------------------------------------

    @property
    def breakpoints(self) -> tuple[str, ...]:
        """Those that are set."""
        return tuple(p.text for p in self._points)

    def clear(self) -> None:
        """Remove all breakpoints."""
        self._points.clear()

    def break_at_event(self, y: int, x: int, thread: int, event: int) -> None:
        """Stop whenever a thread of a PE comes to an event, before its first issue.

        Raises:
          WaferError: The PE's role has no such event.
        """
        lane, role = self._lane(y, x), self.program.role_at(y, x)
        thread, event = whole(thread, "thread"), whole(event, "event")
        if not (0 <= thread < len(role.threads) and 0 <= event < len(role.threads[thread])):
            raise WaferError(
                f"{self.program.name}: PE (y={y}, x={x}) has no event {event} in thread {thread}: "
                f"see print(program.at({y}, {x}))"
            )
        what = " ".join(role.describe(thread, event).split())
        text = f"PE (y={y}, x={x}), thread {thread} comes to event {event} ({what})"
        self._add(Breakpoint(Kind.EVENT, text, lane, thread, event))

    def break_at_word(self, color: int, y: int | None = None, x: int | None = None) -> None:
        """Stop, once, when the next word of a colour leaves the router of a PE, or of any PE."""
        self._break_on_color(Kind.LEAVES, color, y, x, "leaves the router of")

    def break_at_receive(self, color: int, y: int | None = None, x: int | None = None) -> None:
        """Stop, once, when a thread of a PE, or of any PE, takes the next word of a colour."""
        self._break_on_color(Kind.RECEIVED, color, y, x, "is received at")

    def break_at_fault(self) -> None:
        """Stop whenever a fault is found anywhere."""
        self._add(Breakpoint(Kind.FAULT, "a fault"))

    def break_at_register(
        self, y: int, x: int, register: Register, relation: Relation, value: int
    ) -> None:
        """Stop whenever a PE's register comes to stand in a relation to a value.

        Raises:
          WaferError: The program does not use the register, or there is no such relation.
        """
        if relation not in RELATIONS:
            raise WaferError(f"relation {relation!r}: choose one of {', '.join(RELATIONS)}")
        value = whole(value, "value")
        if not -(2**31) <= value < 2**31:
            raise WaferError(f"{value} does not fit a register of 32 bits")
        self._check_register(register)
        text = f"PE (y={y}, x={x}), r{register.index} {relation} {value}"
        self._add(
            Breakpoint(
                Kind.REGISTER, text, self._lane(y, x), register.index, value,
                RELATIONS.index(relation),
            )
        )  # fmt: skip

    def _break_on_color(self, kind: Kind, color: int, y: int | None, x: int | None, how: str):
        if (y is None) != (x is None):
            raise WaferError("a PE has a row and a column: give both y and x, or neither")
        lane, where = ANYWHERE, "some PE"
        if y is not None and x is not None:
            lane, where = self._lane(y, x), f"PE (y={y}, x={x})"
        text = f"a word of colour {color} {how} {where}"
        self._add(Breakpoint(kind, text, lane, self._color(color)))

    def _add(self, point: Breakpoint) -> None:
        if len(self._points) == MAX_BREAKPOINTS:
            raise WaferError(f"{MAX_BREAKPOINTS} breakpoints are set: clear() some first")
        self._points.append(point)

    # ---- looking ---------------------------------------------------------------------------

    @property
    def snapshot(self) -> dict:
        """The state as arrays over [Y, X]."""
        return snapshot(self.program, self.state)

    @property
    def result(self) -> Result:
        """Values, cycles and faults so far."""
        found = diagnose(self.program, self.state)
        return Result(
            program=self.program, state=self.state, diagnosis=found, run_s=0.0, compile_s=0.0
        )

    def where(self, y: int, x: int) -> str:
        """What each thread of a PE is at, and why it does not issue, a line each."""
        role, snap = self.program.role_at(y, x), self.snapshot
        lines = [f"PE (y={y}, x={x}), role {role.name!r}, cycle {snap['now']}"]
        lines += [
            f"  {thread_status(self.program, snap, (y, x), t)}" for t in range(len(role.threads))
        ]
        return "\n".join(lines)

    def watch(
        self,
        y: int,
        x: int,
        what: Register | str | int,
        elements: slice = slice(None),
    ) -> None:
        """Follow values of a PE from now on; `watched` shows them.

        Args:
          y: Row.
          x: Column.
          what: A register; the name of a tile; or a colour, for the words in its two queues.
          elements: Of a tile, in the order of its memory.

        Raises:
          WaferError: There is nothing of that name, or too much is watched.
        """
        lane, place = self._lane(y, x), f"({y}, {x})"
        if isinstance(what, Register):
            self._check_register(what)
            found = [Watched(f"r{what.index} {place}", Source.REGISTER, lane, what.index)]
        elif isinstance(what, str):
            if not isinstance(elements, slice):
                raise WaferError(f"elements={elements!r}: give a slice, such as slice(0, 4)")
            if self.state.memory is None:
                raise WaferError(f"{self.program.name}: without values there are no tiles")
            found = tile_words(self.program, y, x, lane, what, elements)
        else:
            c = self._color(what)
            found = [Watched(f"router {what} {place}", Source.ROUTER, lane, c)]
            if c in self.spec.delivered:
                found.append(Watched(f"input {what} {place}", Source.INPUT, lane, c))
        if (count := len(self._watches) + len(found)) > MAX_WATCHES:
            raise WaferError(f"watch: {count} values, at most {MAX_WATCHES}: give fewer elements")
        self._watches += [watched._replace(since=self.now) for watched in found]
        words = watched_words(self.spec, self.state, watch_table(self._watches))
        self._rows[self.now] = np.asarray(words)

    @property
    def watched(self) -> "pd.DataFrame":
        """The watched values: a row per cycle at whose start one had changed.

        Between two stops the last 1,023 changes are kept.
        """
        import pandas as pd  # slow to import, and most runs print no table

        cycles = sorted(self._rows)
        table: dict[str, list] = {"cycle": cycles}
        for i, watched in enumerate(self._watches):
            table[watched.name] = [
                watched.decode(self._rows[c][i]) if c >= watched.since else None for c in cycles
            ]
        return pd.DataFrame(table)

    def _keep_changes(self, ran: Session) -> None:
        changes, cycles, values = int(ran.changes), np.asarray(ran.cycles), np.asarray(ran.values)
        # The slot behind the last change holds a row that was not one.
        for i in range(max(0, changes - CHANGES + 1), changes):
            self._rows[int(cycles[i % CHANGES])] = np.array(values[i % CHANGES])

    def _lane(self, y: int, x: int) -> int:
        y, x = whole(y, "y"), whole(x, "x")
        self.program.role_at(y, x)
        return y * self.spec.row + x

    def _color(self, color: int) -> int:
        color = whole(color, "colour")
        if color not in self.program.colors:
            used = ", ".join(map(str, self.program.colors))
            raise WaferError(f"{self.program.name}: has no colour {color!r}, only {used}")
        return self.program.colors.index(color)

    def _check_register(self, register: Register) -> None:
        if not isinstance(register, Register):
            raise WaferError(f"{register!r} is no register: give wj.Register(0), for instance")
        if not 0 <= register.index < self.spec.registers:
            raise WaferError(f"{self.program.name}: does not use register {register.index}")
