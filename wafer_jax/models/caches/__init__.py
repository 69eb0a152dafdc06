"""Policies by which keys and values lie over the rows of a layer's region, one file each.

A policy is a pytree class with what `shift.ShiftCache` has: ``create`` and ``from_prefill``,
``make_room`` ahead of a token and ``put`` of its vectors, ``held`` for which places are in use, and
``capacity``; beside it stand ``put_costs`` and ``balance_costs``.

Caches that grow may have any of ``POLICIES``, whose modules also have ``create`` and
``from_prefill`` by themselves, and ``rows``: over how many rows the tokens are spread. The cache of
a window is `ring`.
"""

from types import ModuleType

from wafer_jax.errors import WaferError
from wafer_jax.models.caches import concat, shift
from wafer_jax.models.mesh_layout import LayerLayout

POLICIES: dict[str, ModuleType] = {"shift": shift, "concat": concat}
"""By ``LayerLayout.kv``."""


def policy_of(layout: LayerLayout) -> ModuleType:
    """The module of a layout's growing caches."""
    return POLICIES[layout.kv]


def check_policy(kv: str) -> str:
    """Pass a policy's name on, unless there is none of that name.

    Raises:
      WaferError: An unknown name.
    """
    if kv not in POLICIES:
        raise WaferError(f"kv={kv!r}: choose one of {', '.join(POLICIES)}")
    return kv
