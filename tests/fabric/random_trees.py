"""Random multicast trees: the routes of the random programs."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX

if TYPE_CHECKING:
    from random_switches import Script

Position = tuple[int, int]
"""(y, x) of a PE."""
DTYPES = ("float32", "float32", "bfloat16", "float16")


@dataclass
class Tree:
    """One source's multicast tree on a colour, and where it comes in the order of streams.

    ``announced``: the first word says how many follow; otherwise they are ``words``, or what the
    ``script`` says (random_switches.py).
    """

    color: int
    source: Position
    rank: float
    words: int
    dtype: str
    feeder: "Tree | None" = None
    announced: bool = False
    rx: dict[Position, int] = field(default_factory=dict)
    tx: dict[Position, set[int]] = field(default_factory=lambda: defaultdict(set))
    owners: dict[tuple[Position, str], int] = field(default_factory=dict)
    segment: int = 0
    script: "Script | None" = None

    @property
    def sinks(self) -> list[Position]:
        return [pe for pe, directions in self.tx.items() if RAMP in directions]


def grow_trees(
    rng: Random,
    places: Mapping[int, Sequence[Position]],
    per_color: int,
    max_words: int,
    dtypes: Mapping[int, str] | None = None,
) -> list[Tree]:
    """1 .. ``per_color`` trees of each colour on its places; trees of a colour share no PE.

    With ``dtypes`` all words of a colour have one element type.
    """
    trees: list[Tree] = []
    for color, pes in places.items():
        free = list(pes)
        for _ in range(rng.randint(1, per_color)):
            if free:
                trees.append(_grow_tree(rng, color, free, trees, max_words, dtypes))
                free = [pe for pe in free if pe not in trees[-1].rx]
    return trees


def _grow_tree(
    rng: Random,
    color: int,
    free: list[Position],
    others: list[Tree],
    max_words: int,
    dtypes: Mapping[int, str] | None,
) -> Tree:
    fed = [(t.feeder, t.source) for t in others]
    feeders = [
        (t, pe)
        for t in others
        for pe in t.sinks
        if t.color != color and pe in free and (t, pe) not in fed
        if dtypes is None or dtypes[color] == t.dtype
    ]
    if feeders and rng.random() < 0.4:  # a thread will forward the other tree's words into this one
        feeder, source = rng.choice(feeders)
        tree = Tree(color, source, feeder.rank, feeder.words, feeder.dtype, feeder)
    else:
        dtype = rng.choice(DTYPES) if dtypes is None else dtypes[color]
        tree = Tree(color, rng.choice(free), rng.random(), rng.randint(1, max_words), dtype)
    tree.rx[tree.source] = RAMP
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        _reach(rng, tree, rng.choice(free), set(free))
    if not tree.sinks:
        tree.tx[tree.source].add(RAMP)
    return tree


def _reach(rng: Random, tree: Tree, sink: Position, free: set[Position]) -> None:
    """Grow a branch to ``sink`` by a search backwards from it, breadth or depth first."""
    toward: dict[Position, int | None] = {sink: None}  # direction of the next PE to the sink
    frontier, snaky = deque([sink]), rng.random() < 0.3
    while frontier:
        pe = frontier.pop() if snaky else frontier.popleft()
        if pe in tree.rx:
            break
        for d in rng.sample(range(4), 4):
            back = (pe[0] + STEP_YX[d][0], pe[1] + STEP_YX[d][1])
            if back in free and back not in toward:
                toward[back] = OPPOSITE[d]
                frontier.append(back)
    else:
        return  # other trees lie between
    while (d := toward[pe]) is not None:
        tree.tx[pe].add(d)
        pe = (pe[0] + STEP_YX[d][0], pe[1] + STEP_YX[d][1])
        tree.rx[pe] = OPPOSITE[d]
    tree.tx[sink].add(RAMP)
