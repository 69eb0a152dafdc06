"""Experts on regions of their own: where tokens go, what comes back, and what it costs."""

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.golden_families import IDS, golden, tiny
from models.tiny_families import FAMILIES
from models.tiny_llama import random_weights
from wafer_jax import hardware
from wafer_jax.errors import WaferError
from wafer_jax.models.config import Experts
from wafer_jax.models.families import read_config
from wafer_jax.models.feed_forward import expert_regions, experts
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.operator_cost import Meter
from wafer_jax.models.placement import place, smallest_side

CONFIG = read_config(FAMILIES["qwen3 moe"])
BIASED = replace(CONFIG, ffn_bias=True)
GRIDS = [((2, 6), (1, 3)), ((5, 8), (2, 3)), ((7, 3), (7, 1))]
"""Meshes and grids; rows and columns are left over, and seven experts in six regions."""


def tiles_of(config, layout):
    """One layer's tiles, stacked, and its weights by the names below ``mlp.``."""
    weights = random_weights(config, seed=5)
    prefix = "model.layers.0.mlp."
    own = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
    read = lambda *names: np.concatenate([own[name] for name in names])
    tiles = experts.lay_out(read, layout)
    return {name: jnp.asarray(tile[None]) for name, tile in tiles.items()}, own


def weights_of(x, own):
    """Weight [T, N] of every expert for tokens [T, E]: softmax, the best two, made to add to 1."""
    scores = x @ own["gate.weight"].T.astype(np.float64)
    share = np.exp(scores - scores.max(axis=-1, keepdims=True))
    share[share < np.sort(share, axis=-1)[:, -2:-1]] = 0
    return share / share.sum(axis=-1, keepdims=True)


def expected_of(x, own):
    """What the layer makes of tokens [T, E], in float64."""
    own = {name: w.astype(np.float64) for name, w in own.items()}
    out = np.zeros_like(x)
    for j, weight in enumerate(weights_of(x, own).T):
        of = lambda name, v, j=j: (
            v @ own[f"experts.{j}.{name}_proj.weight"].T + own[f"experts.{j}.{name}_proj.bias"]
        )
        gate = of("gate", x)
        out += weight[:, None] * of("down", gate / (1 + np.exp(-gate)) * of("up", x))
    return out


@pytest.mark.parametrize(("mesh", "grid"), GRIDS)
def test_decode_computes_the_chosen_experts_where_they_are(mesh, grid):
    layout = LayerLayout(BIASED, mesh, grid)
    tiles, own = tiles_of(BIASED, layout)
    x = np.random.default_rng(3).standard_normal(48)
    wanted = expected_of(x[None], own)[0]
    others = np.flatnonzero(weights_of(x[None], own)[0] == 0)
    for name in ("gate_up", "down", "gate_up_bias", "down_bias"):
        tiles[name] = tiles[name].at[0, others].set(np.nan)
    padded = np.zeros(mesh[0] * layout.hidden_y, np.float32)
    padded[:48] = x
    by_row = jnp.asarray(padded.reshape(mesh[0], -1))
    decode = jax.jit(experts.decode, static_argnums=(3, 4, 5))
    found = decode(tiles, by_row, jnp.int32(0), layout, 2)
    assert found.shape == padded.shape
    assert not found[48:].any()
    np.testing.assert_allclose(found[:48], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    short = decode(tiles, by_row, jnp.int32(0), layout, 2, "float16")[:48]
    assert 0 < np.abs(short - wanted).max() < 1e-2 * np.abs(wanted).max()


@pytest.mark.parametrize(("mesh", "grid"), GRIDS)
def test_prefill_gives_every_region_all_tokens(mesh, grid):
    layout = LayerLayout(BIASED, mesh, grid)
    tiles, own = tiles_of(BIASED, layout)
    tokens = 3 * mesh[0]
    x = np.random.default_rng(4).standard_normal((tokens, 48))
    dense = np.zeros((tokens, mesh[1] * layout.hidden_x), np.float32)
    dense[:, :48] = x
    blocks = dense.reshape(mesh[0], 3, mesh[1], -1).transpose(1, 3, 0, 2)  # [l, ex, Y, X]
    of_prefill = experts.relay({name: tile[0] for name, tile in tiles.items()}, layout)
    prefill = jax.jit(experts.prefill, static_argnums=(2, 3, 4))
    out = np.asarray(prefill(of_prefill, jnp.asarray(blocks), layout, "rounds", 2))
    assert out.shape == blocks.shape
    found = out.transpose(2, 0, 3, 1).reshape(dense.shape)
    wanted = expected_of(x, own)
    np.testing.assert_allclose(found[:, :48], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert not found[:, 48:].any()


def test_a_model_with_its_experts_on_regions():
    model = MeshModel(
        tiny("qwen3 moe"),
        hardware("wse2", mesh=(4, 7)).replace(sram_bytes=1 << 20),
        expert_grid=(2, 2),
    )
    logits = golden()["qwen3 moe"][0]
    output = model.prefill(IDS[0][:7], context=12)
    for t in range(7, 12):
        assert np.abs(output.logits - logits[t - 1]).max() <= 1e-5 * np.abs(logits).max()
        output = model.decode(int(IDS[0][t]), output.cache)


@pytest.mark.parametrize(("mesh", "grid"), [((7, 5), (3, 2)), ((9, 2), (4, 1))])
def test_parts_are_added_on_their_way_to_their_row(mesh, grid):
    """Element by element: from the north, then from the south, and the two together."""
    layout = LayerLayout(CONFIG, mesh, grid)
    region, count = layout.expert_region, layout.expert_regions
    shape = (count, region.mesh[1], region.mesh[0] * region.hidden_y)
    parts = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    # One column of every region has all of its part, so that no order along rows matters.
    parts[:, 1:] = 0
    parts.reshape(*grid, *shape[1:])[:, 1:] = 0
    found = np.asarray(expert_regions.combine(jnp.asarray(parts), layout, 2))
    by_row = parts[:: grid[1], 0]
    for element in range(48):
        target, place = element // layout.hidden_y, element // region.hidden_y
        above = [by_row[i, element] for i in range(grid[0]) if i * region.mesh[0] + place <= target]
        rest = [by_row[i, element] for i in range(len(above), grid[0])]
        total = np.float32(0)
        for value in above:
            total = total + value
        back = np.float32(0)
        for value in reversed(rest):
            back = back + value
        assert found[element] == total + back
    assert not found[48:].any()


@pytest.mark.parametrize(
    ("length", "size", "new_size", "copies", "step"),
    [(48, 10, 24, 2, 2), (48, 7, 16, 2, 3), (5, 1, 5, 3, 1), (6, 2, 3, 1, 2), (9, 3, 3, 1, 3)],
)
def test_the_busiest_link(length, size, new_size, copies, step):
    """Every way walked link by link; a multicast takes a link once."""
    links, longest = Counter(), 0
    for element in range(length):
        taken = set()
        for i in range(copies):
            here, there = element // size, i * step + element // new_size
            longest = max(longest, abs(there - here))
            while here != there:
                onward = here + (1 if there > here else -1)
                taken.add((here, onward))
                here = onward
        links.update(taken)
    busiest = max(links.values(), default=0)
    assert expert_regions.busiest(length, size, new_size, copies, step) == (busiest, longest)


@pytest.mark.parametrize(("chosen", "grid"), [(2, (1, 1)), (3, (2, 1)), (3, (2, 3)), (2, (7, 1))])
def test_loads_are_those_of_all_choices(chosen, grid):
    config = replace(CONFIG, experts=Experts(7, chosen))
    layout = LayerLayout(config, (7, 7), grid)
    sets = list(combinations(range(7), chosen))
    most = [max(Counter(j // layout.experts_per_region for j in s).values()) for s in sets]
    wanted = {m: count / len(sets) for m, count in Counter(most).items()}
    assert expert_regions.loads(config.experts, layout) == pytest.approx(wanted)


def test_strips_of_columns_need_no_dispatch_in_decode():
    hw = hardware("wse2", mesh=(4, 6)).replace(sram_bytes=1 << 20)
    names = {}
    for grid in ((1, 1), (1, 2), (2, 2)):
        placement = place(CONFIG, hw, context=32, prompt=16, expert_grid=grid)
        costs = decode_costs(placement, 32), prefill_costs(placement, 16)
        names[grid] = [[o.operator for o in phase.layer] for phase in costs]
    moves = {"dispatch", "combine"}
    assert not moves & {*names[1, 1][0], *names[1, 1][1], *names[1, 2][0]}
    assert moves <= {*names[1, 2][1]}
    assert moves <= {*names[2, 2][0]}
    assert [n for n in names[2, 2][0] if n not in moves] == names[1, 1][0]


def test_cycles_of_regions():
    """One expert per region: two chosen ones side by side, and their sums on a smaller mesh."""
    hw = hardware("wse2", mesh=(8, 14)).replace(sram_bytes=1 << 20)
    placement = place(CONFIG, hw, context=32, prompt=16, expert_grid=(1, 7))
    decode = {o.operator: o for o in decode_costs(placement, 32).layer}
    prefill = {o.operator: o for o in prefill_costs(placement, 16).layer}
    meter = Meter(hw, "float32")
    one = meter.allreduce("", (8, 2), 2 * 12, "y", copies=2, compute=meter.multiply((6, 24)))
    assert decode["gate, up"].cycles == one.cycles
    assert decode["gate, up"].moved_bytes == one.moved_bytes
    assert decode["down"].compute_cycles == meter.multiply((12, 6))
    product = meter.matmul("", (8, 2), (16, 48, 24 * 2))
    assert prefill["gate, up"].cycles == product.cycles
    assert prefill["gate, up"].moved_bytes == 7 * product.moved_bytes


def test_a_pe_holds_whole_tiles_of_its_regions_experts_only():
    tiled, split = (LayerLayout(CONFIG, (4, 6), grid) for grid in ((1, 1), (2, 2)))
    of_one = {tiled: (3 * 12 * 4, 7), split: (3 * 24 * 8, 2)}  # of an expert, and how many
    held = {layout: 4 * size * count for layout, (size, count) in of_one.items()}
    sizes = [layer_bytes(layout, "float32", 2, 1).weights_bytes for layout in (tiled, split)]
    assert sizes[1] - sizes[0] == held[split] - held[tiled]


def test_the_table_of_the_page_on_models():
    page = Path(__file__).parents[2] / "docs" / "models.md"
    row = re.compile(r"^\| (\d)x(\d) \|((?: [\d,]+ \|){6})$", re.MULTILINE)
    rows = row.findall(page.read_text())
    assert len(rows) == 5
    config, hw = model_config("qwen3-30b-a3b"), hardware("wse2", mesh=(240, 240))
    options = {"context": 4096, "prompt": 1024, "dtype": "bfloat16"}
    for down, across, figures in rows:
        placement = place(config, hw, expert_grid=(int(down), int(across)), **options)
        found = []
        for costs in (decode_costs(placement, 4096), prefill_costs(placement, 1024)):
            moves = [o.cycles for o in costs.layer if o.operator in ("dispatch", "combine")]
            found += [sum(o.cycles for o in costs.layer), sum(moves)]
        found += [placement.regions[1].memory.weights_bytes, placement.kv_capacity]
        assert found == [int(n.replace(",", "")) for n in re.findall(r"[\d,]+", figures)]
    with pytest.raises(WaferError, match="for a prompt of 1,024 tokens"):
        place(config, hw, expert_grid=(6, 6), **options)


@pytest.mark.parametrize(
    ("name", "grid", "message"),
    [
        ("qwen3", (1, 2), "this model has no experts, leave it out"),
        ("qwen3 moe", (4, 2), "has 8 regions, a layer has 7 experts: choose no more"),
        ("qwen3 moe", (0, 2), r"expert_grid=\(0, 2\): choose \(rows, columns\) of regions"),
        ("qwen3 moe", (6, 1), "at most one per PE of a layer's 5x8"),
        ("qwen3 moe", 4, "expert_grid=4: choose"),
        ("qwen3 moe", (2.0, 1), r"expert_grid=\(2.0, 1\): choose"),
    ],
)
def test_bad_grids(name, grid, message):
    hw = hardware("wse2", mesh=(5, 8)).replace(sram_bytes=1 << 20)
    with pytest.raises(WaferError, match=message):
        place(read_config(FAMILIES[name]), hw, expert_grid=grid)


def test_the_smallest_side_holds_the_grid():
    hw = hardware("wse2", mesh=(5, 8))
    sides = [smallest_side(CONFIG, hw, "float32", expert_grid=grid) for grid in ((1, 1), (1, 7))]
    assert sides[0] < 7 <= sides[1]
