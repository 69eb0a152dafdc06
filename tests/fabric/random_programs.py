"""Seeded random programs: mostly valid, often contending, sometimes wrong on purpose.

A *family* fixes everything that a compiled step may depend on (mesh, hardware, colours, threads,
tiles, kernels, length of the event tables), so its seeds share one compilation; a seed draws the
rest, and at most one mishap.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from random_author import Author
from random_dynamic import DynamicAuthor
from random_families import FAMILIES, Family

from wafer_jax.program import Program


def random_program(
    seed: int, families: Sequence[Family] = FAMILIES, *, lean: bool = False, **hw_overrides: Any
) -> tuple[Program, dict[str, np.ndarray]]:
    """A program of family ``seed % len(families)`` and its loaded tiles.

    A ``lean`` one lacks what makes a family share one compilation, so a step specialised on it
    leaves out all that it does not use.
    """
    family = families[seed % len(families)]
    make = DynamicAuthor if family.segments else Author
    author = make(family, Random(seed), family.hardware(**hw_overrides), lean)
    return author.write(f"random {seed}")
