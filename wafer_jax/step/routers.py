"""Phase (b) and (c) of the routers (docs/semantics.md, section 2.1).

All planes are flat over the lanes [n]; a neighbour is a constant offset in a plane padded by a
row of inert lanes on either side.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.hardware import OPPOSITE, RAMP
from wafer_jax.step import fifo as f
from wafer_jax.step.halo import Edges, exchange, with_guards, without_ghosts
from wafer_jax.step.reduce import any_lane
from wafer_jax.step_spec import Code, StepSpec

# XLA fuses unrolled colours and ports exponentially unless the phases are kept apart.
barrier = lax.optimization_barrier


@dataclass(frozen=True)
class Moves:
    """What the routers decided in a cycle, per colour.

    Attributes:
      taken: C arrays [n] uint8, the transmit set that the head leaves through, 0 if it stays.
      arriving: C arrays [n] uint8, 1 where a word arrives over a link.
      dead_ends: Arrays [n] bool by dynamic colour, a ready head has no way on.
      pointer: [n] int16, the next arbitration pointer, or None.
      taken_edges: Per colour, what neighbouring devices took.
      carried_edges: Per plane of ``decide``'s ``carried``, what their heads carry.
    """

    taken: list[jax.Array]
    arriving: list[jax.Array]
    dead_ends: dict[int, jax.Array]
    pointer: jax.Array | None
    taken_edges: list[Edges]
    carried_edges: list[Edges]


def decide(
    spec: StepSpec,
    routes: list[jax.Array],
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
    controls: dict[int, jax.Array],
    busy: jax.Array | None,
    pointer: jax.Array | None,
    carried: list[tuple[int, jax.Array]],
) -> Moves:
    """Choose the heads that leave, on the snapshot after the delay lines advanced.

    Args:
      spec: Static part.
      routes: C arrays [n], the current routes.
      router: C arrays [n], router FIFOs.
      inputs: Arrays [n] by delivered colour, input queues.
      controls: Arrays [n] bool by colour, the head is a control wavelet.
      busy: [n] uint8, set of links that a packet occupies, or None.
      pointer: [n] int16, arbitration pointer, or None.
      carried: (colour, [n]) of all that travels with the heads, for the neighbouring devices.
    """
    accepts = barrier([_accepting_side(spec, routes[c], router[c]) for c in _all(spec)])
    beyond = exchange(spec, accepts, _targets(spec))
    accepts = [with_guards(spec, *a) for a in zip(accepts, beyond, strict=True)]
    wants = [
        _eligible(spec, routes[c], router[c], inputs.get(c), controls.get(c), accepts[c], c)
        for c in _all(spec)
    ]
    if busy is not None:
        wants = [jnp.where(want & busy != 0, jnp.uint8(0), want) for want in wants]
    dead = [_dead_end(spec, routes[c], router[c], accepts[c], c) for c in spec.dynamic]
    wants, dead = barrier((wants, dead))
    if spec.arbitrates:
        contested = any_lane(spec, _overlap(wants))
        wants, pointer = lax.cond(
            contested, lambda w, p: _arbitrate(spec, w, p), lambda w, p: (w, p), wants, pointer
        )
        wants, pointer = barrier((wants, pointer))
    sources = _sources(spec)
    beyond = exchange(
        spec,
        [*wants, *(plane for _, plane in carried)],
        [*sources, *(sources[c] for c, _ in carried)],
    )
    taken_edges, carried_edges = beyond[: spec.colors], beyond[spec.colors :]
    guarded = barrier([with_guards(spec, *w) for w in zip(wants, taken_edges, strict=True)])
    arriving = [_arriving(spec, guarded[c], c) for c in _all(spec)]
    dead_ends = dict(zip(spec.dynamic, dead, strict=True))
    return Moves(wants, arriving, dead_ends, pointer, taken_edges, carried_edges)


def unrouted_heads(
    spec: StepSpec, code: Code, router: list[jax.Array], moves: Moves
) -> dict[int, jax.Array]:
    """By colour [n] bool: a ready head that has no way on."""
    out = dict(moves.dead_ends)
    if spec.can_be_unrouted:
        assert code.unrouted is not None
        for c in set(_all(spec)) - set(spec.dynamic):
            out[c] = (f.ready(spec.fifo, router[c]) > 0) & code.unrouted[c]
    return out


def arriving_words(
    spec: StepSpec, moves: Moves, heads: jax.Array, beyond: Edges, color: int
) -> jax.Array:
    """[n]: what arrives over a link; 0 where nothing does.

    Args:
      spec: Static part.
      moves: What the routers decided.
      heads: [n], what every head carries.
      beyond: The same of neighbouring devices, of ``moves.carried_edges``.
      color: Index of the colour.
    """
    out = jnp.zeros_like(heads)
    taken = with_guards(spec, moves.taken[color], moves.taken_edges[color])
    heads = with_guards(spec, heads, beyond)
    for d in spec.links[color]:
        if d != RAMP:
            here = _shifted(spec, taken, OPPOSITE[d]) >> d & 1 == 1
            out |= jnp.where(here, _shifted(spec, heads, OPPOSITE[d]), 0)
    return out


def _all(spec: StepSpec) -> range:
    return range(spec.colors)


def _offset(spec: StepSpec, direction: int) -> int:
    return (-spec.row, 1, spec.row, -1)[direction]


def _targets(spec: StepSpec) -> list[tuple[int, ...]]:
    """Per colour, the directions of the neighbours that it is sent to."""
    return [tuple(d for d in directions if d != RAMP) for directions in spec.links]


def _sources(spec: StepSpec) -> list[tuple[int, ...]]:
    """Per colour, the directions of the neighbours that it comes from."""
    return [tuple(OPPOSITE[d] for d in directions) for directions in _targets(spec)]


def _shifted(spec: StepSpec, guarded: jax.Array, direction: int) -> jax.Array:
    """[n]: for each lane the value at its neighbour in a direction."""
    start = spec.row + _offset(spec, direction)
    return lax.slice_in_dim(guarded, start, start + spec.lanes)


_FULL = 8


def _accepting_side(spec: StepSpec, routes: jax.Array, router: jax.Array) -> jax.Array:
    """1 + the direction from which the router FIFO accepts words, or 0; plus _FULL if not now."""
    fifo = spec.fifo
    capacity = routes >> 8 & ((1 << fifo.count_bits) - 1)
    side = routes >> 5 & 7
    return jnp.where(f.total(fifo, router) < capacity, side, side | _FULL).astype(jnp.uint8)


def _eligible(
    spec: StepSpec,
    routes: jax.Array,
    router: jax.Array,
    inputs: jax.Array | None,
    control: jax.Array | None,
    accepts: jax.Array,
    color: int,
) -> jax.Array:
    """[n] uint8: the transmit set where the head is ready and all targets accept it, else 0."""
    fifo = spec.fifo
    ok = f.ready(fifo, router) > 0
    for d in spec.links[color]:
        if d == RAMP:
            assert inputs is not None
            free = f.total(fifo, inputs) < (routes >> (8 + fifo.count_bits))
            if control is not None:
                free |= control
        else:
            free = _shifted(spec, accepts, d) == OPPOSITE[d] + 1
        ok &= (routes >> d & 1 == 0) | free
    return jnp.where(ok, routes & 31, 0).astype(jnp.uint8)


def _dead_end(
    spec: StepSpec, routes: jax.Array, router: jax.Array, accepts: jax.Array, color: int
) -> jax.Array:
    """[n] bool: a ready head whose transmit set is empty or meets a router that never listens."""
    deaf = routes & 31 == 0
    for d in spec.links[color]:
        if d != RAMP:
            silent = _shifted(spec, accepts, d) & (_FULL - 1) == 0
            deaf |= (routes >> d & 1 == 1) & silent
    return (f.ready(spec.fifo, router) > 0) & deaf


def _overlap(wants: list[jax.Array]) -> jax.Array:
    """[n] bool: two eligible colours want the same link."""
    taken, overlap = wants[0], jnp.zeros_like(wants[0])
    for want in wants[1:]:
        overlap |= taken & want
        taken |= want
    return overlap != 0


def _arbitrate(
    spec: StepSpec, wants: list[jax.Array], pointer: jax.Array
) -> tuple[list[jax.Array], jax.Array]:
    """Grant links in cyclic order from the pointer, which moves to the first loser."""
    taken = jnp.zeros_like(wants[0])
    loser = jnp.full_like(pointer, -1)
    won = [jnp.zeros_like(w) for w in wants]
    for wrapped in (False, True):
        for c in _all(spec):
            turn = (pointer > c) if wrapped else (pointer <= c)
            want = jnp.where(turn, wants[c], 0)
            blocked = (want & taken) != 0
            grant = jnp.where(blocked, 0, want)
            taken |= grant
            won[c] |= grant
            loser = jnp.where(blocked & (loser < 0), jnp.int16(c), loser)
    return won, jnp.where(loser >= 0, loser, pointer)


def _arriving(spec: StepSpec, taken: jax.Array, color: int) -> jax.Array:
    """[n] uint8: 1 where a neighbour's head arrives. It left because this side listens to it."""
    out = jnp.zeros(spec.lanes, jnp.uint8)
    for d in spec.links[color]:
        if d != RAMP:
            out |= _shifted(spec, taken, OPPOSITE[d]) >> d & 1
    return without_ghosts(spec, out)
