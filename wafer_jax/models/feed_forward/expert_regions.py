"""Experts on regions of their own: what goes there and back, values and cycles.

A layer's region of Y x X PEs is cut into a grid of equal regions, and every one of them holds whole
experts, tiled over its own mesh; with a grid of one region all experts are tiled over the whole
layer. Regions compute their experts side by side, one after another within a region.

Tokens lie over all rows and columns of the layer, and every region cuts them anew over its own. So
what goes out is a multicast: an element is wanted at one place of every region. What comes back
goes the same ways in the other direction and is added up where two of them meet.

Axes: R regions in I rows and J columns, h and w a region's PEs, N experts; e', ex', f', l' one PE's
part on a region; else as in `mesh_layout`.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import comb

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.tiles import tile_matrix, tile_size, untile_matrix
from wafer_jax.collectives.tree_bulk import rounded
from wafer_jax.models.config import Experts
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_products import sum_along
from wafer_jax.models.operator_cost import Meter, OperatorCost, in_sequence


def home_of(numbers: jax.Array, layout: LayerLayout) -> jax.Array:
    """Regions of experts; consecutive experts share one."""
    return numbers // layout.experts_per_region


def dispatch(x: jax.Array, layout: LayerLayout) -> jax.Array:
    """One token's [Y, e], the same on every column, to [h, e'], the same on every region."""
    return _cut_anew(x, layout, layout.expert_region)


def combine(parts: jax.Array, layout: LayerLayout, k: int) -> jax.Array:
    """Add up what the PEs made of one token.

    Args:
      parts: [R, w, h * e'], a PE's own part of its region's products.
      layout: Layout of the layer.
      k: Phases of the K-tree along the layer's rows.

    Returns:
      [Y * e]. Along a column parts are added on their way, from both ends towards their row.
    """
    region, (rows, columns) = layout.expert_region, layout.expert_grid
    by_column = parts.reshape(rows, columns * region.mesh[1], -1).swapaxes(0, 1)  # [J * w, I, h e']
    idle = layout.mesh[1] - len(by_column)
    lines = sum_along(jnp.pad(by_column, ((0, idle), (0, 0), (0, 0))), k)  # [I, h * e']
    place = np.arange(lines.shape[1])
    below = place // layout.hidden_y < _rows_of_copies(layout, place // region.hidden_y)  # [I, he']
    south, north = jnp.zeros_like(lines[0]), jnp.zeros_like(lines[0])
    for part, is_below in zip(lines, below, strict=True):
        south = jnp.where(is_below, south, _add(south, part))
    for part, is_below in zip(lines[::-1], below[::-1], strict=True):
        north = jnp.where(is_below, _add(north, part), north)
    return _cut_anew(_add(south, north), region, layout).reshape(-1)


def cut_bias_anew(bias: jax.Array, layout: LayerLayout) -> jax.Array:
    """[h * e'] on a region to [Y * e]."""
    return _cut_anew(bias, layout.expert_region, layout).reshape(-1)


def dispatch_prompt(x: jax.Array, layout: LayerLayout) -> jax.Array:
    """A prompt's [l, ex, Y, X] to [l', ex', h, w]."""
    return _cut_prompt_anew(x, layout, layout.expert_region, x.shape[0] * layout.mesh[0])


def dispatch_weights(weights: jax.Array, layout: LayerLayout) -> jax.Array:
    """Weights of a prompt [N, l, Y] to [N, l', h]."""
    rows = layout.expert_region.mesh[0]
    by_token = weights.swapaxes(1, 2).reshape(len(weights), -1)
    size = tile_size(by_token.shape[1], rows)
    padded = jnp.pad(by_token, ((0, 0), (0, rows * size - by_token.shape[1])))
    return padded.reshape(-1, rows, size).swapaxes(1, 2)


def combine_prompt(parts: jax.Array, layout: LayerLayout, tokens: int) -> jax.Array:
    """[R, l', ex', h, w] of all regions to their sum [l, ex, Y, X], l ``tokens`` per row."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return _cut_prompt_anew(total, layout.expert_region, layout, tokens * layout.mesh[0])


def _cut_anew(x: jax.Array, source: LayerLayout, target: LayerLayout) -> jax.Array:
    """A vector of the embedding axis over the rows of another mesh."""
    flat = x.reshape(-1)[: source.config.hidden_size]
    rows, size = target.mesh[0], target.hidden_y
    return jnp.pad(flat, (0, rows * size - len(flat))).reshape(rows, size)


def _cut_prompt_anew(
    x: jax.Array, source: LayerLayout, target: LayerLayout, tokens: int
) -> jax.Array:
    if source.mesh == target.mesh:
        return x
    dense = untile_matrix(x, (tokens, source.config.hidden_size))
    idle = target.mesh[1] * target.hidden_x - dense.shape[1]
    return tile_matrix(jnp.pad(dense, ((0, 0), (0, idle))), target.mesh)


def _rows_of_copies(layout: LayerLayout, row: np.ndarray) -> np.ndarray:
    """[I, ...] rows of the layer that a row of every region is."""
    first = np.arange(layout.expert_grid[0]) * layout.expert_region.mesh[0]
    return first.reshape(-1, *[1] * row.ndim) + row


def _add(a: jax.Array, b: jax.Array) -> jax.Array:
    """A sum, rounded where it is shorter than float32."""
    total = a.astype(jnp.float32) + b.astype(jnp.float32)
    return total if a.dtype == jnp.float32 else rounded(total, a.dtype)


def loads(experts: Experts, layout: LayerLayout) -> dict[int, float]:
    """How many chosen experts the busiest region has, each with its probability.

    Every choice of experts counts as equally likely; a trained router is more or less even. With
    one region, or one expert per region, there is only one possibility.
    """
    sizes = [
        len(range(first, min(first + layout.experts_per_region, experts.count)))
        for first in range(0, experts.count, layout.experts_per_region)
    ]
    ways = [_choices(sizes, experts.chosen, most) for most in range(experts.chosen + 1)]
    total = comb(experts.count, experts.chosen)
    exactly = {m: ways[m] - ways[m - 1] for m in range(1, experts.chosen + 1)}
    return {m: float(Fraction(count, total)) for m, count in exactly.items() if count}


def _choices(sizes: list[int], chosen: int, most: int) -> int:
    """Sets of ``chosen`` experts with at most so many in any region."""
    ways = [1] + [0] * chosen
    for size in sizes:
        ways = [
            sum(comb(size, m) * ways[n - m] for m in range(min(most, size, n) + 1))
            for n in range(chosen + 1)
        ]
    return ways[chosen]


def dispatch_costs(meter: Meter, layout: LayerLayout) -> Iterator[OperatorCost]:
    """One token's vector along all columns, to the rows of the regions."""
    yield from _of_one_token(meter, layout, "dispatch", 1)


def combine_costs(meter: Meter, layout: LayerLayout) -> Iterator[OperatorCost]:
    """The same ways back; what comes by is added without a cycle of its own."""
    yield from _of_one_token(meter, layout, "combine", layout.expert_grid[0])


def _of_one_token(
    meter: Meter, layout: LayerLayout, name: str, senders: int
) -> Iterator[OperatorCost]:
    rows, size = layout.expert_grid[0], layout.config.hidden_size
    if rows > 1:
        region = layout.expert_region
        elements, hops = busiest(size, layout.hidden_y, region.hidden_y, rows, region.mesh[0])
        words = block_words(elements, meter.dtype)
        moved = senders * layout.mesh[1] * block_words(size, meter.dtype)
        yield meter.stream(name, words, hops, moved)


def dispatch_prompt_costs(meter: Meter, layout: LayerLayout, rows: int) -> Iterator[OperatorCost]:
    """A prompt with so many tokens per row to all regions: along the rows, then the columns."""
    yield from _of_prompt(meter, layout, "dispatch", rows)


def combine_prompt_costs(meter: Meter, layout: LayerLayout, rows: int) -> Iterator[OperatorCost]:
    """The same ways back, added on the way."""
    yield from _of_prompt(meter, layout, "combine", rows)


def _of_prompt(meter: Meter, layout: LayerLayout, name: str, rows: int) -> Iterator[OperatorCost]:
    (height, width), (down, across) = layout.mesh, layout.expert_grid
    if down * across == 1:
        return
    region, tokens, size = layout.expert_region, rows * height, layout.config.hidden_size
    parts, words = [], lambda elements: block_words(elements, meter.dtype)
    if across > 1:
        cut = size, layout.hidden_x, region.hidden_x
        elements, hops = busiest(*cut, across, region.mesh[1])
        moved = words(tokens * size)
        parts.append(meter.stream("", words(elements * rows), hops, moved))
    if down > 1:
        of_token = region.hidden_x + layout.experts_per_region * (name == "dispatch")
        cut = tokens, rows, tile_size(tokens, region.mesh[0])
        elements, hops = busiest(*cut, down, region.mesh[0])
        moved = words(tokens * of_token) * width
        parts.append(meter.stream("", words(elements * of_token), hops, moved))
    yield in_sequence(name, *parts)


def busiest(length: int, size: int, new_size: int, copies: int, step: int) -> tuple[int, int]:
    """Cut an axis of ``length`` anew along a line of PEs, once for each of several runs of PEs.

    Args:
      length: Elements.
      size: Of them per PE now.
      new_size: Per PE of a run.
      copies: Runs, which begin every ``step`` PEs.
      step: PEs of a run.

    Returns:
      Elements that cross the busiest link, and the links of the longest way. A multicast crosses a
      link once.
    """
    element = np.arange(length)
    source, first = element // size, element // new_size
    last = first + (copies - 1) * step
    pes = int(max(source.max(), last.max())) + 1

    def crossing(start: np.ndarray, end: np.ndarray) -> int:
        away = end > start
        change = np.zeros(pes + 1, int)
        np.add.at(change, start[away] + 1, 1)
        np.add.at(change, end[away] + 1, -1)
        return int(change.cumsum().max())

    backwards = lambda place: pes - 1 - place
    elements = max(crossing(source, last), crossing(backwards(source), backwards(first)))
    return elements, int(max((last - source).max(), (source - first).max(), 0))
