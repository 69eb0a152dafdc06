"""Bytes of a PE that holds several decoder layers: how WaferLLM's table 5 can be accounted for.

The paper states neither a formula, nor the layers of a region, nor the bytes kept for code and
buffers (section 7.4). Its figures are c = 137,548 / 360 = 382.08 and 6,168 / 375 = 16.45 tokens
per row of PEs: concat holds floor(c), shift holds floor(rows * c). Everything else here is
inference, and each assumption has a name.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

from wafer_jax.hardware import DTYPE_BYTES, HardwareSpec
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes

WAFER_CORES = 850_000
"""Cores of a WSE-2 (WaferLLM, section 2). Assumed: regions share all of them, whatever their shape;
only four squares of 360 x 360 fit side by side, and eight layers each do not fit their SRAM."""
ELEMENT_BYTES = DTYPE_BYTES["float16"]
"""Assumed: weights, keys and values in 16 bits, as in the published code."""
DECODE_CODE_BYTES = 14_480
"""Text section of the published decode program at 256 x 256 (public build log): what the code alone
can take."""


@dataclass(frozen=True)
class Region:
    """A region that holds so many layers, its tensors cut evenly over its cores, without padding.

    Attributes:
      config: The model.
      side: Rows and columns of cores.
    """

    config: DecoderConfig
    side: int

    @property
    def layers(self) -> int:
        """Layers of a region if the wafer's cores make WAFER_CORES / side^2 regions."""
        return math.ceil(self.config.num_layers / (WAFER_CORES / self.side**2))

    @property
    def weights_bytes(self) -> float:
        """Matrices of one layer, per core."""
        c = self.config
        attention = 2 * c.hidden_size * (c.q_size + c.kv_size)
        feed_forward = 3 * c.hidden_size * c.intermediate_size
        return (attention + feed_forward) * ELEMENT_BYTES / self.side**2

    @property
    def kv_bytes(self) -> float:
        """Key and value of one token in one layer, per core of the row that holds it."""
        return 2 * self.config.kv_size * ELEMENT_BYTES / self.side

    def tokens_per_row(self, hw: HardwareSpec, reserved_bytes: float) -> float:
        """c: what fits beside the weights and ``reserved_bytes`` for code and buffers."""
        free = hw.sram_bytes - reserved_bytes - self.layers * self.weights_bytes
        return free / (self.layers * self.kv_bytes)

    def reserved_bytes(self, hw: HardwareSpec, tokens_per_row: float) -> float:
        """What is left for code and buffers if c is ``tokens_per_row``."""
        return hw.sram_bytes - self.layers * (self.weights_bytes + tokens_per_row * self.kv_bytes)

    def placed_slots(self, hw: HardwareSpec, layers: int) -> int:
        """Whole tokens per row of ``layers`` layers as this package lays them out.

        Heads keep columns of their own, tiles are padded, buffers are those of one layer, and
        ``HardwareSpec.reserved_bytes`` are the preset's.
        """
        layout = LayerLayout(self.config, (self.side, self.side))

        def over(slots: int) -> bool:
            one = layer_bytes(layout, "float16", slots * self.side, 1)
            return layers * (one.weights_bytes + one.kv_bytes) + one.buffers_bytes > hw.data_bytes

        return max(0, bisect_left(range(hw.data_bytes), True, key=over) - 1)


def capacities(side: int, tokens_per_row: float) -> dict[str, int]:
    """Tokens by policy: whole ones of one row, and whole ones of all rows together."""
    return {"concat": math.floor(tokens_per_row), "shift": math.floor(side * tokens_per_row)}
