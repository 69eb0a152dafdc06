"""Bytes of a PE's SRAM that the program of a decoder takes.

Only WaferLLM's decode on the WSE is known: its code (the text section) has 14,480 bytes, with a
PE's data the whole image has 25,728 at 256x256 PEs (published with MeshJIT). All layers run the
same code, so it does not grow with the model. A preset's ``reserved_bytes`` are the part of it that
every program has, the vendor's runtime and a minimal kernel.
"""

from wafer_jax.hardware import HardwareSpec

_PUBLISHED = {"wse2": 14_480, "wse3": 14_480, "wse3_silicon": 14_480}


def image_bytes(hw: HardwareSpec) -> int:
    """Code of a decoder on one PE, ``reserved_bytes`` of them included; where nothing is published
    these alone.
    """
    return max(hw.reserved_bytes, _PUBLISHED.get(hw.name, 0))
