"""Policies by which keys and values of a growing cache lie over the rows, one file each.

A policy is a pytree class with what `shift.ShiftCache` has: ``create`` and ``from_prefill``,
``make_room`` ahead of a token and ``put`` of its vectors, ``held`` for which places are in use, and
``capacity``; beside it stand ``put_costs`` and ``balance_costs``.
"""
