"""Random programs whose routes change: segments, switches, control wavelets.

A dynamic colour has other trees in every segment. The run visits the segments in phases; streams
of phase v have positions between v and v + 1, and at position v all PEs change over, in a *style*
that is the phase's own: with everybody waiting for everybody before and after (such a program ends
well), or with less care, so that words meet routes of another segment.
"""

from collections.abc import Callable
from dataclasses import replace

from random_author import LAST, Author
from random_switches import COMMANDS, plain_script, switched_script
from random_trees import DTYPES, Position, Tree, grow_trees

from wafer_jax.builder import ProgramBuilder, RoleBuilder, ThreadBuilder
from wafer_jax.events import Halt, Register
from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX
from wafer_jax.program import NO_ROUTE
from wafer_jax.segment_builder import SegmentBuilder

STYLES = ("strict", "hasty", "local", "wild")
ROUTE_MISHAPS = ("early_change", "no_segment", "stray_control", "stray_words", "photo_finish") * 2


class DynamicAuthor(Author):
    """Draws one program of a family with segments."""

    def write(self, name: str):
        rng, segments = self.rng, self.family.segments
        self.num_threads = {pe: max(2, count) for pe, count in self.num_threads.items()}
        self.order = [0, *rng.sample(range(1, segments), segments - 1)]
        if segments > 1 and rng.random() < 0.4:
            self.order.append(rng.choice(self.order[:-1]))
        self.line = _snake(*self.family.mesh)
        self.ends: dict[tuple[Position, int, str], int] = {}
        self.joined: dict[Position, int] = {}
        return super().write(name)

    def _mishaps(self) -> tuple[str, ...]:
        return (*super()._mishaps(), *ROUTE_MISHAPS)

    def _moment(self) -> float:
        return self.rng.random() * len(self.order)

    @property
    def scratch(self) -> Register:
        """What a change of segment by register uses."""
        return Register(4 * self.family.threads + 1)

    # ---- trees -------------------------------------------------------------------------------

    def _reserve(self) -> dict[int, Position | None]:
        """Each colour's hub is another PE, so that it can have the deepest queues."""
        colors = self.family.colors
        hubs = [None] * len(colors) if self.lean else self.rng.sample(self.pes, len(colors))
        return dict(zip(colors, hubs, strict=True))

    def _grow(self) -> list[Tree]:
        family, rng = self.family, self.rng
        dtypes = {c: rng.choice(DTYPES) for c in family.colors}
        trees: list[Tree] = []
        for phase, segment in enumerate(self.order):
            if segment in self.order[:phase]:
                trees += self._again(phase, segment, trees)
                continue
            if phase and rng.random() < 0.3:
                before = self._again(phase, self.order[phase - 1], trees)
                trees += [self._alike(tree, segment) for tree in before]
                continue
            colors = family.dynamic if phase else family.colors
            places = {c: [pe for pe in self.pes if pe != self.hubs[c]] for c in colors}
            grown = grow_trees(rng, places, family.trees, family.words, dtypes)
            tied = any(t.feeder and t.color in family.dynamic for t in grown)
            static = {c: 0 if tied else rng.randrange(len(self.order)) for c in family.static}
            taken = [(id(t.feeder), t.source) for t in grown]
            for tree in grown:
                own = (id(tree), tree.source) not in taken and len(tree.sinks) > 1
                if own and rng.random() < 0.8:
                    tree.tx[tree.source].discard(RAMP)
                tree.segment, tree.rank = segment, tree.rank + static.get(tree.color, phase)
                if tree.feeder:
                    tree.rank = tree.feeder.rank
            self._draw_scripts(grown, places)
            trees += grown
        return trees

    def _again(self, phase: int, segment: int, trees: list[Tree]) -> list[Tree]:
        """The streams of a segment once more."""
        feeders = [t.feeder for t in trees]
        return [
            replace(t, rank=phase + self.rng.random(), owners={})
            for t in trees
            if t.color in self.family.dynamic
            and t.segment == segment
            and not t.feeder
            and not any(t is feeder for feeder in feeders)
        ]

    def _alike(self, tree: Tree, segment: int) -> Tree:
        """A tree for another segment that differs at most in which switches are rings."""
        tree = replace(tree, segment=segment)
        if tree.script:
            switches = {
                pe: replace(switch, ring=switch.ring != (self.rng.random() < 0.7))
                for pe, switch in tree.script.switches.items()
            }
            tree.script = replace(tree.script, switches=switches)
        return tree

    def _draw_scripts(self, grown: list[Tree], places: dict[int, list[Position]]) -> None:
        free = {c: set(pes) for c, pes in places.items()}
        for tree in grown:
            free[tree.color] -= set(tree.rx)
        for tree in (t for t in grown if t.color in self.family.controlled and not t.feeder):
            feeds = any(t.feeder is tree for t in grown)
            if self.hw.switch_positions > 1 and not feeds and self.rng.random() < 0.7:
                tree.script = switched_script(self.rng, self.hw, tree, free[tree.color])
            elif self.rng.random() < 0.6:
                tree.script = plain_script(self.rng, tree)

    # ---- streams -----------------------------------------------------------------------------

    def _plan_streams(self) -> None:
        self.forwards = {(t.feeder.color, t.source, t.segment) for t in self.trees if t.feeder}
        self.joined = {
            t.source: self.rng.randrange(self.num_threads[t.source]) for t in self.trees if t.feeder
        }
        for tree in self.trees:
            self._plan_tree(tree)
        self._plan_changes()

    def _plan_tree(self, tree: Tree) -> None:
        script = tree.script
        for source in script.sources if script else [tree.source]:
            if script:
                emit = self._scripted(tree, source)
            elif tree.feeder:
                emit = self._forward(tree.feeder.color, tree)
            else:
                emit = self._send(tree)
            thread = self._end(source, tree.color, "send")
            self.plan[source, thread].append((tree.rank, emit))
            tree.owners[source, "send"] = thread
        arrivals = script.arrivals if script else dict.fromkeys(tree.sinks, tree.words)
        for pe, words in arrivals.items():
            if (tree.color, pe, tree.segment) not in self.forwards:
                thread = self._end(pe, tree.color, "receive")
                self.plan[pe, thread].append((tree.rank, self._receive(replace(tree, words=words))))
                tree.owners[pe, "receive"] = thread

    def _end(self, pe: Position, color: int, end: str) -> int:
        """The thread that owns an end of a colour; one that forwards owns all the PE's."""
        if pe in self.joined:
            return self.joined[pe]
        other = self.ends.get((pe, color, "receive" if end == "send" else "send"))
        threads = [t for t in range(self.num_threads[pe]) if t != other] or [0]
        return self.ends.setdefault((pe, color, end), self.rng.choice(threads))

    def _scripted(self, tree: Tree, source: Position) -> Callable:
        send, script = super()._send, tree.script
        assert script

        def emit(t: ThreadBuilder) -> None:
            for at, line in script.lines:
                if at != source:
                    continue
                if isinstance(line, int):
                    send(replace(tree, words=line))(t)
                else:
                    t.control(tree.color, line)

        return emit

    # ---- changes of segment --------------------------------------------------------------------

    def _plan_changes(self) -> None:
        careful = self.rng.random() < 0.5
        for phase, segment in enumerate(self.order[1:], start=1):
            style = "strict" if careful else self.rng.choice(STYLES)
            for pe in self.pes:
                self._plan_change(pe, phase, segment, style)

    def _plan_change(self, pe: Position, phase: int, segment: int, style: str) -> None:
        threads = range(1, self.num_threads[pe])
        if style == "wild":
            thread = self.rng.randrange(self.num_threads[pe])
            moment = phase + self.rng.uniform(-0.7, 0.7)
            self.plan[pe, thread].append((moment, lambda t: self._change(t, segment)))
            return
        arrived = self.family.semaphores

        def lead(t: ThreadBuilder) -> None:
            for _ in threads:
                t.wait(arrived)
            if style != "local":
                self._meet(t, pe)
            self._change(t, segment)
            if style == "strict":
                self._meet(t, pe)
            for other in threads:
                t.signal(arrived + other)

        self.plan[pe, 0].append((phase, lead))
        for other in threads:
            follow = lambda t, other=other: t.signal(arrived).wait(arrived + other)
            self.plan[pe, other].append((phase, follow))

    def _change(self, t: ThreadBuilder, segment: int) -> None:
        how = self.rng.choice(("fixed", "fixed", "set", "count"))
        if how == "fixed":
            t.reconfigure(segment)
        elif how == "set":
            t.set(self.scratch, segment).reconfigure(self.scratch)
        else:
            t.set(self.scratch, segment - 1).add(self.scratch, 1).reconfigure(self.scratch)

    def _meet(self, t: ThreadBuilder, pe: Position) -> None:
        """All PEs get here before one goes on: along the line, and back by a multicast."""
        *along, back = self.family.meeting
        out, into = self.tiles["a"].slice(0, 1), self.tiles["u"].slice(0, 1)
        i, last = self.line.index(pe), len(self.line) - 1
        if i > 0:
            t.receive(along[i % 2], into)
        if i < last:
            t.send(along[(i + 1) % 2], out).receive(back, into)
        else:
            t.send(back, out)

    # ---- mishaps -------------------------------------------------------------------------------

    def _meet_mishap(self) -> None:
        super()._meet_mishap()
        rng, segments = self.rng, self.family.segments
        pe, thread = rng.choice(list(self.plan))
        match self.mishap:
            case "early_change":
                segment = rng.randrange(segments)
                self._append(pe, thread, self._moment(), lambda t: self._change(t, segment))
            case "no_segment":
                number = rng.choice((-1, segments, segments + 3, 2**31 - 1, -(2**31)))
                self._append(
                    pe,
                    thread,
                    self._moment(),
                    lambda t: t.set(self.scratch, number).reconfigure(self.scratch),
                )
            case "stray_control" | "stray_words":
                self._stray(words=self.mishap == "stray_words")
            case "photo_finish":
                self._race_to_the_router()

    def _append(self, pe: Position, thread: int, moment: float, emit: Callable) -> None:
        self.plan[pe, thread].append((moment, emit))

    def _stray(self, *, words: bool) -> None:
        """Something that a source sends and nobody expects."""
        trees = [t for t in self.trees if words or t.color in self.family.controlled]
        ends = [(t, pe, n) for t in trees for (pe, end), n in t.owners.items() if end == "send"]
        if not ends:
            return
        tree, pe, thread = self.rng.choice(ends)
        command = self.rng.choice(COMMANDS)

        def emit(t: ThreadBuilder) -> None:
            if words:
                t.send(tree.color, self._slice(tree.dtype, 2, 2, written=True))
            else:
                t.control(tree.color, command)

        self._append(pe, thread, self.rng.choice((tree.rank, self._moment(), LAST)), emit)

    def _race_to_the_router(self) -> None:
        """A source's control wavelet leaves its switch about when the PE reconfigures."""
        ends = [
            (tree, pe, thread)
            for tree in self.trees
            for (pe, end), thread in tree.owners.items()
            if end == "send" and tree.script and pe in tree.script.switches
        ]
        for tree, pe, thread in ends:
            segment = self.rng.choice((tree.segment, self.rng.randrange(self.family.segments)))

            def emit(t: ThreadBuilder, tree=tree, segment=segment) -> None:
                t.control(tree.color, self.rng.choice(("advance", "tear down")))
                for _ in range(self.hw.ramp_cycles):
                    t.signal(0)
                t.reconfigure(segment)

            self._append(pe, thread, tree.rank, emit)

    # ---- routes --------------------------------------------------------------------------------

    def _paint(self, b: ProgramBuilder) -> None:
        self._paint_meeting(b)
        painters = [b, *(b.segment(f"segment {g}") for g in range(1, self.family.segments))]
        self.later = painters[1:]
        for g, segment in enumerate(painters):
            for color in self.family.dynamic if g else self.family.colors:
                trees = [t for t in self.trees if t.color == color and t.segment == g]
                for tree in trees:
                    self._paint_tree(segment, tree)
                self._paint_rest(segment, g, color, {pe for t in trees for pe in t.rx})

    def _paint_tree(self, segment: SegmentBuilder | ProgramBuilder, tree: Tree) -> None:
        switches = tree.script.switches if tree.script else {}
        for pe, rx in tree.rx.items():
            if pe not in switches:
                segment.route(tree.color, *pe, rx, sorted(tree.tx[pe]))
                continue
            routes = switches[pe].routes(rx, tree.tx[pe])
            if self.hw.switch_changes == "one side":
                routes = [r for r in routes if r[0] == routes[0][0] or r[1] == routes[0][1]]
            if len(routes) > 1:
                segment.switch(tree.color, *pe, *routes, ring=switches[pe].ring)
            else:
                segment.route(tree.color, *pe, *routes[0])

    def _paint_rest(self, segment, g: int, color: int, used: set[Position]) -> None:
        """The hub, and routes that no word should ever take."""
        rng, hub = self.rng, self.hubs[color]
        switched = color in self.family.controlled and self.hw.switch_positions > 1
        for pe in (pe for pe in self.pes if pe not in used and pe != hub):
            if rng.random() < 0.5:
                rx = rng.choice((0, 1, 2, 3, NO_ROUTE, RAMP))
                tx, other = (rng.sample(range(5), rng.randint(0, 3)) for _ in range(2))
                if switched and rng.random() < 0.3:
                    segment.switch(color, *pe, (rx, tx), (rx, other), ring=rng.random() < 0.5)
                else:
                    segment.route(color, *pe, rx, tx)
        if hub is None:
            return
        ramp = color not in self.family.dynamic or g == self.family.segments - 1
        rx = RAMP if ramp else rng.randrange(4)
        if switched and g == 0:
            later = [(rx, [rng.randrange(5)]) for _ in range(self.hw.switch_positions - 1)]
            segment.switch(color, *hub, (rx, range(5)), *later, ring=True)
        else:
            segment.route(color, *hub, rx, range(5))

    def _paint_meeting(self, b: ProgramBuilder) -> None:
        if not self.family.meeting:
            return
        *along, back = self.family.meeting
        steps = [
            STEP_YX.index((y2 - y1, x2 - x1))
            for (y1, x1), (y2, x2) in zip(self.line, self.line[1:], strict=False)
        ]
        for i, d in enumerate(steps):
            color = along[(i + 1) % 2]
            b.route(color, *self.line[i], RAMP, d)
            b.route(color, *self.line[i + 1], OPPOSITE[d], RAMP)
            b.route(back, *self.line[i], d, [RAMP, OPPOSITE[steps[i - 1]]] if i else RAMP)
        b.route(back, *self.line[-1], RAMP, OPPOSITE[steps[-1]])

    def _bind_queues(self, role: RoleBuilder, pe: Position) -> None:
        """Other queues in every segment; a hub has the shallowest first and the deepest last."""
        colors, meeting = self.family.colors, self.family.meeting
        for g, segment in enumerate((None, *self.later)):
            order = self.rng.sample(range(len(colors)), len(colors))
            for i in (i for i, c in enumerate(colors) if self.hubs[c] == pe):
                j = order.index(len(colors) - 1 if g == len(self.later) else 0)
                order[i], order[j] = order[j], order[i]
            queues = (*order, *range(len(colors), len(colors) + len(meeting)))
            for color, queue in zip((*colors, *meeting), queues, strict=True):
                role.bind(color, input_queue=queue, output_queue=queue, segment=segment)

    def _write_role(self, b: ProgramBuilder, pe: Position) -> RoleBuilder:
        """Behind the halt stands what makes the PE bind queues that it may not need."""
        role = super()._write_role(b, pe)
        if not self.lean:
            role.thread(0).events.append(Halt())
            for color in (c for c, hub in self.hubs.items() if hub == pe):
                role.thread(0).send(color, self.tiles["a"])
            if self.family.meeting:
                self._meet(role.thread(0), pe)
        return role


def _snake(height: int, width: int) -> list[Position]:
    """All PEs, each beside the next."""
    return [(y, x if y % 2 == 0 else width - 1 - x) for y in range(height) for x in range(width)]
