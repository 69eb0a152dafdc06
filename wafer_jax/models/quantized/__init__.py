"""Quantised checkpoints: FP8 with block scales, MXFP4, and what a ``config.json`` says of them."""
