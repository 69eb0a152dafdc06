"""Bytes of packed tiles against a count of what every single PE holds, and what unpacking costs."""

import re
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from models.test_placement import LLAMA3_8B, SMOLLM2, wse2
from wafer_jax.errors import WaferError
from wafer_jax.models.capacity import what_fits
from wafer_jax.models.config import RopeConfig
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_layout import PAD, LayerLayout, VocabLayout, blocks
from wafer_jax.models.mesh_memory import layer_bytes, vocab_bytes
from wafer_jax.models.placement import place
from wafer_jax.models.storage import STORAGES, Span, storage_of

PACKED = [name for name, storage in STORAGES.items() if storage.is_packed]


@pytest.mark.parametrize("name", [n for n in PACKED if n.startswith("q")] + ["mxfp4"])
def test_whole_blocks_take_what_gguf_gives_them(name):
    items, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    storage = storage_of(name)
    assert storage.tile_bytes(Span(items), Span(1)) == size
    assert storage.tile_bytes(Span(2 * items), Span(5)) == 10 * size


def test_q4_1_takes_twenty_bytes_per_32_weights_and_fp8_one_and_a_scale():
    assert storage_of("q4_1").tile_bytes(Span(32), Span(24)) == 24 * 20
    assert storage_of("fp8").tile_bytes(Span(128), Span(256)) == 128 * 256 + 2 * 4
    assert storage_of("mxfp4").tile_bytes(Span(64), Span(3)) == 2 * 3 * 17
    assert storage_of("float16").tile_bytes(Span(7), Span(3)) == 42


@pytest.mark.parametrize("length", [1, 3, 24, 31, 32, 33, 48, 64, 100])
@pytest.mark.parametrize("block", [1, 32, 128])
def test_blocks_that_a_run_touches(length, block):
    starts = range(0, 50 * length, length)
    most = max((s + length - 1) // block - s // block + 1 for s in starts)
    found = Span(length).blocks(block)
    # Multiples of the length reach every residue that its common divisor with the block allows.
    assert most <= found <= min(length, most + (50 * length < block * length))


def touched(index: np.ndarray, block: int) -> int:
    """The most blocks that a row of an index [PEs, elements] has a part of."""
    return max(len({i // block for i in row if i != PAD}) for row in index.tolist())


@pytest.mark.parametrize(
    ("config", "mesh", "slack"),
    [
        (SMOLLM2, (24, 24), 1.35),
        (SMOLLM2, (18, 32), 1.35),
        (SMOLLM2, (7, 11), 1.35),
        (LLAMA3_8B, (360, 360), 1.35),
        (replace(SMOLLM2, rope=RopeConfig(rotary_dim=16)), (24, 24), 1.35),
        (replace(SMOLLM2, rope=RopeConfig(rotary_dim=20)), (24, 24), 1.4),  # runs count as broken
    ],
)
@pytest.mark.parametrize("name", ["q4_1", "fp8", "q6_k"])
def test_a_layer_counts_no_less_than_its_fullest_pe_holds(config, mesh, slack, name):
    """From the indices by which tiles are cut, independent of the closed form."""
    storage, layout = storage_of(name), LayerLayout(config, mesh)
    hidden = blocks(config.hidden_size, mesh[0])
    ffn = blocks(config.intermediate_size, mesh[1])

    def tile(rows, columns):
        n, k = storage.block
        factors = touched(rows, n) * touched(columns, k) * storage.block_bytes
        return rows.shape[1] * columns.shape[1] * storage.bits / 8 + factors

    wanted = sum(
        tile(*pair)
        for pair in (
            (hidden, layout.q_columns),
            (hidden, layout.kv_columns),
            (hidden, layout.kv_columns),
            (layout.q_columns, hidden),
            (hidden, ffn),
            (hidden, ffn),
            (ffn, hidden),
        )
    )
    found = layer_bytes(layout, name, 1, 1).weights_bytes
    # Prefill's layout may need more, and edge PEs hold less than what is counted.
    assert wanted + 2 * 4 * layout.hidden_y <= found <= slack * wanted + 2 * 4 * layout.hidden_x


def test_the_vocabulary_has_a_format_of_its_own():
    layout = VocabLayout(SMOLLM2, (24, 64))
    packed = vocab_bytes(layout, "q4_1")
    assert packed.weights_bytes == vocab_bytes(layout, "q8_0").weights_bytes
    assert packed.weights_bytes == 768 * (24 + 2 * 2) + 24 * 4  # two scales: 24 rows cut blocks
    assert vocab_bytes(layout, "fp8").weights_bytes == vocab_bytes(layout, "bfloat16").weights_bytes


@pytest.mark.parametrize("name", STORAGES)
def test_every_format_is_placed_and_costed(name):
    placement = place(SMOLLM2, wse2(24, 24), context=96, prompt=24, dtype=name)
    assert placement.frame["free_bytes"].ge(0).all()
    storage = placement.storage
    plain = replace(placement, dtype=storage.compute)
    for costs in (decode_costs, prefill_costs):
        packed, other = costs(placement, 24), costs(plain, 24)
        by_name = {o.operator: o for o in other.layer}
        slower = {o.operator for o in packed.layer if o.cycles > by_name[o.operator].cycles}
        products = {"q, k, v", "o", "gate, up", "down"}
        assert slower == (products if storage.is_packed else set())


def test_unpacking_is_so_many_instructions_per_row():
    hw = wse2(24, 24)
    packed = decode_costs(place(SMOLLM2, hw, dtype="q4_1"), 24)
    plain = decode_costs(place(SMOLLM2, hw, dtype="float16"), 24)
    rows, columns = 24, 128  # of gate and up on one PE
    (extra,) = (
        a.compute_cycles - b.compute_cycles
        for a, b in zip(packed.layer, plain.layer, strict=True)
        if a.operator == "gate, up"
    )
    assert extra == rows * int(np.ceil(3 * hw.vector_cycles(columns, "float16")))


def test_packed_layers_fit_smaller_regions():
    hw = wse2(15, 15)
    place(SMOLLM2, hw, dtype="q4_0")
    with pytest.raises(WaferError, match="of them weights in float16"):
        place(SMOLLM2, hw, dtype="float16")
    with pytest.raises(WaferError, match=r"dtype 'int8': choose one of float32, .*, q4_1, .*fp8"):
        place(SMOLLM2, hw, dtype="int8")


def test_the_table_of_the_page_on_precisions():
    page = Path(__file__).parents[2] / "docs" / "precisions.md"
    row = re.compile(r"^\| (\w+) \|((?: [\d,]+ \|){5})$", re.MULTILINE)
    rows = {name: [int(n.replace(",", "")) for n in re.findall(r"[\d,]+", figures)]
            for name, figures in row.findall(page.read_text())}  # fmt: skip
    assert list(rows) == list(STORAGES)
    hw = wse2(24, 24)
    fits = what_fits(SMOLLM2, hw).set_index("dtype")
    for name, shown in rows.items():
        placement = place(SMOLLM2, hw, context=512, prompt=96, dtype=name)
        assert shown == [
            placement.regions[1].memory.weights_bytes,
            fits.loc[name, "smallest_side"],
            fits.loc[name, "kv_capacity"],
            decode_costs(placement, 512).layer_cycles,
            prefill_costs(placement, 96).layer_cycles,
        ]
