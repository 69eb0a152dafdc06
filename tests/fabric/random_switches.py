"""Switches in random multicast trees, and what the sources send through them.

The words that a switch lets through depend on the control wavelets that passed it before, and on
nothing else: every router is a queue that listens to one side at a time. So a walk of the words
one by one, in any order that gets them through, says what each PE receives at any speed.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from random_trees import Position, Tree

from wafer_jax.events import Command
from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX, HardwareSpec
from wafer_jax.program import NO_ROUTE

COMMANDS: tuple[Command, ...] = ("none", "advance", "reset", "tear down")
OFTEN: tuple[Command, ...] = ("none", "advance", "advance", "advance", "advance", "reset")
TORN_DOWN = -1


@dataclass
class Switch:
    """What later positions change of position 0, which is the tree's route: rx, tx or both."""

    changes: list[tuple[int | None, set[int] | None]]
    ring: bool

    def routes(self, rx: int, tx: set[int]) -> list[tuple[int, list[int]]]:
        """All positions, given the first."""
        later = [(rx if r is None else r, tx if t is None else t) for r, t in self.changes]
        return [(r, sorted(t)) for r, t in ((rx, tx), *later)]


@dataclass
class Script:
    """What passes a tree: (source, words or command) in an order that gets all through."""

    lines: list[tuple[Position, int | Command]] = field(default_factory=list)
    arrivals: Counter[Position] = field(default_factory=Counter)
    switches: dict[Position, Switch] = field(default_factory=dict)
    joins: list[Position] = field(default_factory=list)  # sources besides the tree's own

    @property
    def sources(self) -> list[Position]:
        return list(dict.fromkeys(source for source, _ in self.lines))


def plain_script(rng: Random, tree: Tree) -> Script:
    """The tree's words with control wavelets between them, and no switch."""
    script, left = Script(arrivals=Counter(dict.fromkeys(tree.sinks, tree.words))), tree.words
    while left:
        if rng.random() < 0.6:
            script.lines.append((tree.source, rng.choice(COMMANDS)))
        words = rng.randint(1, min(left, 6))
        script.lines.append((tree.source, words))
        left -= words
    if rng.random() < 0.5:
        script.lines.append((tree.source, rng.choice(COMMANDS)))
    return script


def switched_script(rng: Random, hw: HardwareSpec, tree: Tree, free: set[Position]) -> Script:
    """Make switches of some PEs of a tree, which grows into ``free`` PEs, and draw what passes."""
    script = Script()
    for pe in rng.sample(list(tree.rx), min(len(tree.rx), rng.choice((1, 1, 2, 3)))):
        script.switches[pe] = _switch(rng, hw, tree, pe, script, free)
    walk, left = _Walk(tree, script), tree.words
    for _ in range(12):
        able = [s for s in (tree.source, *script.joins) if walk.route(s)]
        if not able or not left:
            break
        source = rng.choice(able)
        if rng.random() < 0.5:
            command = rng.choice(OFTEN) if rng.random() < 0.9 else "tear down"
            script.lines.append((source, command))
            walk.control(source, command)
            if command == "tear down" and rng.random() < 0.6:
                script.lines.append((source, rng.randint(1, 3)))
        else:
            words = rng.randint(1, min(left, 6))
            left -= words
            script.lines.append((source, words))
            script.arrivals.update(dict.fromkeys(walk.sinks(source), words))
    return script


def _switch(
    rng: Random, hw: HardwareSpec, tree: Tree, pe: Position, script: Script, free: set[Position]
) -> Switch:
    kinds = ("tx", "tx", "rx") + (("both",) if hw.switch_changes == "both sides" else ())
    changes: list[tuple[int | None, set[int] | None]] = []
    for _ in range(rng.randint(1, hw.switch_positions - 1)):
        kind = rng.choice(kinds)
        rx = None if kind == "tx" else _join(rng, tree, pe, script, free)
        tx = None if kind == "rx" else _branch(rng, tree, pe, free)
        changes.append((rx, tx))
    return Switch(changes, ring=rng.random() < 0.5)


def _branch(rng: Random, tree: Tree, pe: Position, free: set[Position]) -> set[int]:
    """Some of the PE's branches, and perhaps a new one to a PE that is a leaf."""
    out = {d for d in tree.tx[pe] if rng.random() < 0.6}
    if pe != tree.source and rng.random() < 0.4:
        out.add(RAMP)
    for d, neighbour in _neighbours(rng, pe, free):
        if rng.random() < 0.5:
            free.remove(neighbour)
            tree.rx[neighbour] = OPPOSITE[d]
            tree.tx[neighbour] = {RAMP}
            out.add(d)
            break
    return out or set(tree.tx[pe])


def _join(rng: Random, tree: Tree, pe: Position, script: Script, free: set[Position]) -> int:
    """Another side to listen to: the PE itself, a free neighbour that becomes a source, nothing."""
    if tree.rx[pe] != RAMP and rng.random() < 0.4:
        script.joins.append(pe)
        return RAMP
    for d, neighbour in _neighbours(rng, pe, free):
        free.remove(neighbour)
        tree.rx[neighbour] = RAMP
        tree.tx[neighbour] = {OPPOSITE[d]}
        script.joins.append(neighbour)
        return d
    return rng.choice((tree.rx[pe], tree.rx[pe], NO_ROUTE, rng.randrange(5)))


def _neighbours(rng: Random, pe: Position, free: set[Position]) -> list[tuple[int, Position]]:
    near = [(d, (pe[0] + dy, pe[1] + dx)) for d, (dy, dx) in enumerate(STEP_YX)]
    return rng.sample([(d, at) for d, at in near if at in free], sum(at in free for _, at in near))


class _Walk:
    """The tree's switches as one word after the other goes all the way."""

    def __init__(self, tree: Tree, script: Script) -> None:
        self.tree, self.switches = tree, script.switches
        self.positions = dict.fromkeys(script.switches, 0)

    def _at(self, pe: Position) -> tuple[int, list[int]]:
        if self.positions.get(pe) == TORN_DOWN or pe not in self.tree.rx:
            return NO_ROUTE, []
        rx, tx = self.tree.rx[pe], self.tree.tx[pe]
        switch = self.switches.get(pe)
        return switch.routes(rx, tx)[self.positions[pe]] if switch else (rx, sorted(tx))

    def route(self, source: Position) -> list[Position]:
        """The routers that a word passes; none if it would not get through."""
        out, frontier = [], [(source, RAMP)]
        while frontier:
            pe, side = frontier.pop()
            rx, tx = self._at(pe)
            if rx != side or not tx:
                return []
            out.append(pe)
            frontier += [
                ((pe[0] + STEP_YX[d][0], pe[1] + STEP_YX[d][1]), OPPOSITE[d])
                for d in tx
                if d != RAMP
            ]
        return out

    def sinks(self, source: Position) -> list[Position]:
        return [pe for pe in self.route(source) if RAMP in self._at(pe)[1]]

    def control(self, source: Position, command: Command) -> None:
        for pe in (pe for pe in self.route(source) if pe in self.switches):
            count = 1 + len(self.switches[pe].changes)
            match command:
                case "advance":
                    wrap = 0 if self.switches[pe].ring else count - 1
                    last = self.positions[pe] == count - 1
                    self.positions[pe] = wrap if last else self.positions[pe] + 1
                case "reset":
                    self.positions[pe] = 0
                case "tear down":
                    self.positions[pe] = TORN_DOWN
