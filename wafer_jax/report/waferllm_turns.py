"""What laying weights out anew between prefill and decode saves per token.

Prefill has the rows of W_O and W_down along Y, decode along X. If they stayed as they are, a layer
would turn four vectors per token: the attention's output and what W_O makes of it, likewise around
W_down.
"""

import pandas as pd

from wafer_jax.collectives import transpose
from wafer_jax.collectives.broadcast import flood_cycles
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.hardware import hardware
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.published.tiles import DTYPE, tiles_of
from wafer_jax.report.experiment import Section
from wafer_jax.report.waferllm_rates import OWN, costs

_NOTE = """\
Turned once: W_O and W_down for decode, and the KV cache balanced, all layers at once. Per token, \
if weights stayed as prefill has them, every layer would turn four vectors: by `transpose`, as \
matrices whose tiles all meet on the diagonal, or, since all rows hold the vector, by a broadcast \
from the diagonal. Percent of a token of the published kernels."""


def turns_section(preset: str, grids: dict[str, int], prompt: int) -> Section:
    """A table of both ways.

    Args:
      preset: Of the machine.
      grids: PEs of a side in decode, by model.
      prompt: Tokens of the prompt.
    """
    rows = [row for model, side in grids.items() for row in _ways(preset, model, side, prompt)]
    title = "Re-layout between the phases against transposes per token (level cost)"
    frame = pd.DataFrame(rows).astype({"once pays after tokens": "Int64"})
    return Section(title, frame, _NOTE)


def _ways(preset: str, model: str, side: int, prompt: int) -> list[dict]:
    hw, config = hardware(preset, (side, side)), model_config(model)
    tiles = tiles_of(hw, config, prompt)
    sizes = (tiles.hidden, tiles.hidden, tiles.ffn, tiles.hidden)
    turned = sum(transpose.cost(hw, 1, n, DTYPE) for n in sizes)
    words = [block_words(n, DTYPE) for n in sizes]
    flooded = sum(hw.launch_cycles + flood_cycles(hw, w, side, 0) for w in words)
    phase = costs(OWN, "prefill", preset, model, side, prompt)
    (once,) = (o.cycles for o in phase.model if o.operator == "re-layout for decode")
    token = costs("WaferLLM", "decode", preset, model, side, prompt).cycles
    ways = {
        "turned once": once,
        "transposes per token": config.num_layers * turned,
        "broadcasts per token": config.num_layers * flooded,
    }
    return [
        {
            "model": model,
            "grid": side,
            "way": way,
            "cycles": cycles,
            "of a token_percent": 100 * cycles / token,
            "once pays after tokens": None if way == "turned once" else -(-once // cycles),
        }
        for way, cycles in ways.items()
    ]
