"""Families of random programs: machines, tiles and kernels that the seeds of a family share."""

from dataclasses import dataclass, field
from typing import Any

from wafer_jax.events import Combine, Kernel
from wafer_jax.hardware import HardwareSpec, hardware


@dataclass(frozen=True)
class Family:
    """What all programs of a family share.

    ``rows_alike``: every row runs the same roles. ``jitter``: programs run with some. With
    ``registers`` they also use branches, lengths and cycles from registers, max and min; with
    ``register_kernels`` kernels read and write registers, too.

    With ``segments`` (random_dynamic.py) the ``dynamic`` colours have other trees in each, control
    wavelets are sent on the ``controlled`` ones, and on three ``meeting`` colours, if given, all
    PEs wait for each other. Of the queues of the ``colors`` the last are the deepest.
    """

    mesh: tuple[int, int]
    colors: tuple[int, ...]
    threads: int
    trees: int = 2
    words: int = 12
    semaphores: int = 3
    rows: int = 80
    rows_alike: bool = False
    jitter: bool = False
    registers: bool = False
    register_kernels: bool = False
    segments: int = 0
    dynamic: tuple[int, ...] = ()
    controlled: tuple[int, ...] = ()
    meeting: tuple[int, ...] = ()
    hw: dict[str, Any] = field(default_factory=dict)

    @property
    def combines(self) -> tuple[Combine, ...]:
        return ("add", "max", "min") if self.registers else ("add",)

    @property
    def static(self) -> tuple[int, ...]:
        return tuple(c for c in self.colors if c not in self.dynamic)

    def hardware(self, **overrides: Any) -> HardwareSpec:
        return hardware("toy", self.mesh).replace(**{**self.hw, **overrides})


def _hw(hop: int, ramp: int, router: int, inputs, outputs, setup: int) -> dict[str, Any]:
    return {
        "hop_cycles": hop,
        "ramp_cycles": ramp,
        "router_depth": router,
        "input_queue_depths": inputs,
        "output_queue_depths": outputs,
        "stream_setup_cycles": setup,
    }


FAMILIES = (
    Family((1, 1), (0, 3), 3, hw=_hw(1, 2, 2, (2, 1), (1, 3), 2)),
    Family((1, 6), (0, 1, 2), 2, hw=_hw(1, 1, 1, (1, 2, 3), (3, 1, 2), 0)),
    Family((5, 1), (1, 4, 5), 2, hw=_hw(2, 3, 2, (2, 2, 1), (1, 1, 1), 5)),
    Family((2, 3), (0, 1, 2, 7), 4, jitter=True, hw=_hw(3, 1, 1, (1, 1, 2, 2), (2, 1, 1, 2), 1)),
    Family((4, 4), (2, 5, 6, 9, 11), 2, hw=_hw(1, 1, 1, (2,) * 5, (1, 2, 3, 1, 1), 0)),
    Family(
        (6, 7), (0, 1, 2, 3), 2, trees=3, jitter=True, hw=_hw(1, 2, 2, (2, 3, 1, 2), (1,) * 4, 3)
    ),
    Family((3, 5), (0, 2, 4), 1, words=20, semaphores=1, hw=_hw(2, 1, 3, (1, 2, 1), (1, 2, 2), 0)),
    Family((2, 6), (1, 2, 3), 3, rows_alike=True, hw=_hw(1, 1, 1, (1, 1, 1), (1, 1, 1), 4)),
    Family((5, 2), (3, 4, 8), 2, words=40, hw=_hw(9, 4, 12, (20, 3, 1), (2, 9, 4), 17)),
    Family(
        (7, 3),
        (0, 1, 2, 3, 4, 5),
        3,
        trees=1,
        semaphores=12,
        jitter=True,
        hw=_hw(2, 2, 1, (1,) * 6, (1,) * 6, 0),
    ),
)

_BASIC: dict[str, Any] = {"registers": True, "rows": 224}
_FULL: dict[str, Any] = {**_BASIC, "register_kernels": True}
REGISTER_FAMILIES = (
    Family((1, 1), (0, 3), 3, **_FULL, hw=_hw(1, 2, 2, (2, 1), (1, 3), 2)),
    Family((2, 3), (0, 1, 5), 3, **_FULL, jitter=True, hw=_hw(1, 1, 1, (1, 2, 3), (1, 1, 1), 0)),
    Family((4, 4), (2, 6, 9), 2, **_FULL, jitter=True, hw=_hw(2, 1, 1, (2, 2, 2), (1, 1, 1), 1)),
    Family((1, 5), (1, 2), 1, words=30, **_FULL, hw=_hw(9, 4, 12, (20, 3), (2, 9), 7)),
    Family(
        (2, 5),
        (0, 1, 4),
        3,
        **_BASIC,
        rows_alike=True,
        jitter=True,
        hw=_hw(1, 1, 1, (1, 1, 1), (1, 1, 1), 4),
    ),
)

_TWO: dict[str, Any] = {"switch_positions": 2, "switch_changes": "one side"}
_FOUR: dict[str, Any] = {"switch_positions": 4}
DYNAMIC_FAMILIES = (
    Family(
        (2, 3),
        (0, 2, 3),
        2,
        rows=160,
        segments=2,
        dynamic=(0, 2),
        controlled=(2,),
        meeting=(5, 6, 7),
        hw=_hw(1, 4, 1, (1, 2, 3, 1, 1, 1), (1, 2, 3, 1, 1, 1), 0) | _TWO,
    ),
    Family(
        (3, 3),
        (1, 4),
        3,
        rows=160,
        segments=1,
        controlled=(1, 4),
        jitter=True,
        hw=_hw(1, 1, 2, (1, 2), (1, 2), 1) | _FOUR,
    ),
    Family(
        (3, 4),
        (0, 1, 8),
        2,
        rows=240,
        segments=3,
        dynamic=(0, 1, 8),
        controlled=(0, 1),
        meeting=(10, 11, 12),
        jitter=True,
        hw=_hw(1, 2, 1, (1, 1, 2, 1, 1, 1), (1, 1, 2, 1, 1, 1), 0) | _FOUR,
    ),
    Family(
        (1, 5),
        (3, 9),
        3,
        words=30,
        rows=240,
        segments=4,
        dynamic=(3,),
        controlled=(9,),
        meeting=(1, 5, 2),
        hw=_hw(9, 3, 4, (2, 9, 1, 1, 1), (2, 9, 1, 1, 1), 3) | {"switch_positions": 1},
    ),
    Family(
        (3, 2),
        (2, 5, 6),
        2,
        **{**_FULL, "rows": 400},
        segments=2,
        dynamic=(2, 6),
        controlled=(5, 6),
        meeting=(0, 8, 9),
        jitter=True,
        hw=_hw(1, 1, 1, (2, 2, 2, 1, 1, 1), (1, 1, 1, 1, 1, 1), 0) | _FOUR,
    ),
)


# Kernels are module-level functions of Python operators alone: numpy and jax both run them.
def turn(a):
    return a.T


def blend(a, b):
    return (a + b.T) * 0.5, b - a.T


def skew(h):
    return h - h.T


def mirror(g):
    return -g[::-1]


TURN, BLEND, SKEW, MIRROR = (Kernel(name=f.__name__, fn=f) for f in (turn, blend, skew, mirror))

# No word is ever read in another element type than it was written in: two halves make a subnormal
# float32, which numpy adds exactly and XLA flushes to zero.
TILES = {
    "a": ((3, 4), "float32"),
    "b": ((4, 3), "float32"),
    "h": ((5, 5), "bfloat16"),
    "g": ((16,), "float16"),
    "u": ((6,), "float32"),  # never loaded: reading it before a write is a fault
    "v": ((12,), "float16"),  # nor is this one
    "pad": ((3,), "float32"),  # of some roles, so that "e" lies at different offsets
    "e": ((5,), "float32"),  # of some roles
}
COMMON, LOADED = ("a", "b", "h", "g", "u", "v"), ("a", "b", "h", "g", "e")
