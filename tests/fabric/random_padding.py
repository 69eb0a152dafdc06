"""Random programs of a family made alike, so that they share one compiled step."""

from dataclasses import replace
from random import Random

from random_families import BLEND, COMMON, MIRROR, SKEW, TURN, Family
from random_registers import Registers
from random_switches import COMMANDS

from wafer_jax.events import (
    AddToRegister,
    Compute,
    Event,
    Forward,
    Halt,
    Loop,
    Receive,
    Reconfigure,
    Register,
    Send,
    SendControl,
    SetRegister,
    Signal,
)
from wafer_jax.program import Program, Role

LEVELS = 2


def pad(program: Program, family: Family) -> Program:
    """Give every program of a family tables of one size, and a role that nobody plays.

    That role names every kind of event, kernel, semaphore, register and loop level, so that what
    a compiled step can depend on does not change from seed to seed.
    """
    full = max(program.roles, key=lambda role: role.words)  # the role at `pes[0]` has all tiles
    everything = tuple(_everything(program, family, full))
    spare = Role(name="nobody", threads=(everything,) * program.num_threads, tiles=full.tiles)
    roles = tuple(
        replace(role, threads=tuple(t + (Halt(),) * (family.rows - len(t)) for t in role.threads))
        for role in (spare, *program.roles)
    )
    assert all(len(t) == family.rows for role in roles for t in role.threads)
    return replace(program, roles=roles, role_of=program.role_of + 1)


def _everything(program: Program, family: Family, full: Role) -> list[Event]:
    a, b, h, g = (full.tiles[name] for name in COMMON[:4])
    first, last = program.colors[0], program.colors[-1]
    slices, hows = [tile.slice() for tile in (a, h, g)], family.combines
    out: list[Event] = [
        *(Send(c, a.slice()) for c in program.colors),
        *(Receive(first, s, how) for s in slices for how in ("copy", *hows)),
        Forward(first, last, 1),
        *(Forward(first, last, s.words, s, how) for s in slices for how in hows),
        Compute(TURN, (a,), (b,), 1),
        Compute(BLEND, (a, b), (a, b), 1),
        Compute(SKEW, (h,), (h,), 1),
        Compute(MIRROR, (g,), (g,), 1),
        *(Signal(s) for s in range(family.semaphores)),
        *(Loop(0, 2, level) for level in range(LEVELS)),
    ]
    for t in range(family.threads if family.registers else 0):
        one = Registers(Random(0), t, family.threads, full.tiles, kernels=family.register_kernels)
        out += one.everything(first, last)
    return out + (_changes(family) if family.segments else [])


def _changes(family: Family) -> list[Event]:
    """What programs with segments have besides."""
    scratch = 4 * family.threads + 1
    return [
        SetRegister(scratch, 0),
        AddToRegister(scratch, 1),
        Reconfigure(Register(scratch)),
        *(Reconfigure(segment) for segment in range(family.segments)),
        *(SendControl(color, command) for color in family.controlled for command in COMMANDS),
        *(Signal(family.semaphores + thread) for thread in range(family.threads)),
    ]
