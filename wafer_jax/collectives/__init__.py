"""Collectives and matrix products: one file per algorithm, each with program, apply and cost."""
