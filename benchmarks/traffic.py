"""Uniform random traffic: seeded source-destination pairs, dimension-order routes, x first.

Routes are fixed per colour, so a flow needs a colour of its own at every router that it passes:
it takes the first in which its route crosses no other. Flows that find none, or whose source or
destination has no queue or thread left, are not placed; these are rather the long ones.

Routers arbitrate word by word, so every word of a stream is a packet of one flit; a flow is one
long stream, because a source that starts an event per word would pay its set-up each time and never
load the mesh. A source sends its flows one after the other, a destination has a thread for each.

python benchmarks/traffic.py SIDE WORDS [--values] [--repeats N]
"""

import argparse
import json
from dataclasses import dataclass

import numpy as np
from measure import Case, measure
from programs import machine

from wafer_jax import Program, ProgramBuilder
from wafer_jax.hardware import HardwareSpec

SEED = 0


@dataclass(frozen=True)
class Flow:
    """Words from one PE to another, both given as y * X + x."""

    source: int
    destination: int
    color: int
    hops: int


def route(side: int, source: int, destination: int) -> np.ndarray:
    """[hops + 1] PEs, along x, then along y."""
    (y, x), (end_y, end_x) = divmod(source, side), divmod(destination, side)
    along_x = np.arange(x, end_x, 1 if end_x > x else -1)
    along_y = np.arange(y, end_y, 1 if end_y > y else -1)
    return np.concatenate([y * side + along_x, along_y * side + end_x, [destination]])


def place(hw: HardwareSpec, pairs: np.ndarray) -> list[Flow]:
    """First fit of the [flows, 2] pairs, within the machine's colours, queues and threads."""
    side = hw.mesh[0]
    taken = np.zeros((hw.colors, side * side), bool)
    sent, received = (np.zeros(side * side, int) for _ in range(2))
    most_in = min(len(hw.input_queue_depths), hw.threads - 1)
    flows = []
    for source, destination in pairs.tolist():
        path = route(side, source, destination)
        free = ~taken[:, path].any(axis=1)
        queues = sent[source] < len(hw.output_queue_depths) and received[destination] < most_in
        if free.any() and queues:
            color = int(free.argmax())
            taken[color, path] = True
            sent[source] += 1
            received[destination] += 1
            flows.append(Flow(source, destination, color, len(path) - 1))
    return flows


def random_pairs(side: int, count: int) -> np.ndarray:
    """[count, 2] uniform sources and other destinations."""
    rng = np.random.default_rng(SEED)
    source = rng.integers(0, side * side, count)
    other = rng.integers(1, side * side, count)
    return np.stack([source, (source + other) % (side * side)], axis=1)


def traffic(hw: HardwareSpec, flows: list[Flow], words: int) -> Program:
    """Tile x [flows of a source, words] goes out, tile y [flows of a destination, words] comes."""
    side = hw.mesh[0]
    builder = ProgramBuilder(hw, f"uniform random traffic, {words} words per flow")
    out, into = by_end(flows)
    x = builder.tile("x", (max(map(len, out.values())), words))
    y = builder.tile("y", (max(map(len, into.values())), words))
    for flow in flows:
        builder.path(flow.color, divmod(flow.source, side), divmod(flow.destination, side))
    for pe in sorted({*out, *into}):
        role = builder.role(f"PE {pe}", at=divmod(pe, side))
        sender = role.thread()
        for i, flow in enumerate(out.get(pe, [])):
            sender.send(flow.color, x.slice(i * words, words))
        for i, flow in enumerate(into.get(pe, [])):
            role.thread(1 + i).receive(flow.color, y.slice(i * words, words))
    return builder.build(inputs=["x"], outputs=["y"])


def by_end(flows: list[Flow]) -> tuple[dict[int, list[Flow]], dict[int, list[Flow]]]:
    """The flows of each source, and of each destination."""
    out: dict[int, list[Flow]] = {}
    into: dict[int, list[Flow]] = {}
    for flow in flows:
        out.setdefault(flow.source, []).append(flow)
        into.setdefault(flow.destination, []).append(flow)
    return out, into


def check(flows: list[Flow], words: int, x: np.ndarray, y: np.ndarray) -> None:
    """Every destination has the words of its sources, in order, and nothing else was written."""
    out, into = by_end(flows)
    x, y = (tile.reshape(*tile.shape[:2], -1) for tile in (x, y))
    expected = np.full(y.shape, np.nan, np.float32)
    for pe, found in into.items():
        for i, flow in enumerate(found):
            expected[i, :, pe] = x[out[flow.source].index(flow), :, flow.source]
    np.testing.assert_array_equal(y, expected)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("side", type=int)
    parser.add_argument("words", type=int)
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    hw, pes = machine(a.side, a.side), a.side**2
    pairs = random_pairs(a.side, pes)
    flows = place(hw, pairs)
    program = traffic(hw, flows, a.words)
    x = program.roles[0].tiles["x"]
    tiles = np.arange(x.size * pes, dtype=np.float32).reshape(*x.shape, a.side, a.side)
    assert tiles.max() < 1 << 24, "float32 cannot tell the words apart"
    result, report = measure(Case(program, {"x": tiles} if a.values else None), a.repeats)
    if a.values:
        check(flows, a.words, tiles, result.values)
    hops = [len(route(a.side, *pair)) - 1 for pair in pairs.tolist()]
    load = result.utilisation.links[:4]
    more = {
        "flows_asked": len(pairs),
        "flows_placed": len(flows),
        "mean_hops_asked": float(np.mean(hops)),
        "mean_hops_placed": float(np.mean([flow.hops for flow in flows])),
        "words_per_pe_and_cycle": len(flows) * a.words / (pes * result.cycles),
        "mean_link_load": float(load.mean()),
        "busiest_link_load": float(load.max()),
        "threads": program.num_threads,
    }
    print(json.dumps(report | more))


if __name__ == "__main__":
    main()
