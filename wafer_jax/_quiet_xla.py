"""Keeps lines off stderr that jaxlib 0.10.0 and 0.10.1 print per executable from the disk cache.

They name features of the compiler (prefer-no-gather, prefer-no-scatter) as missing on this very
machine. The level is read when jax is imported, so this module comes before it; a level of the
user's own stays.
"""

import os
from importlib.metadata import version

if version("jaxlib") in ("0.10.0", "0.10.1"):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
