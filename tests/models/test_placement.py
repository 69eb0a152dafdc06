"""Regions on wafers, bytes per PE, and what is refused."""

import pytest

from models.tiny_llama import TINY
from wafer_jax import hardware
from wafer_jax.errors import WaferError
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_costs import decode_costs
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes
from wafer_jax.models.placement import kv_capacity, place, smallest_side

SMOLLM2 = DecoderConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9,
    num_kv_heads=3, head_dim=64, tie_embeddings=True,
)  # fmt: skip
LLAMA3_8B = DecoderConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_layers=32, num_heads=32,
    num_kv_heads=8, head_dim=128,
)  # fmt: skip


def wse2(*mesh: int):
    return hardware("wse2", mesh=(mesh[0], mesh[1]))


@pytest.mark.parametrize("mesh", [(24, 24), (32, 32), (18, 32)])
def test_smollm2_fits_one_wafer(mesh):
    placement = place(SMOLLM2, wse2(*mesh), context=112, prompt=48)
    assert placement.wafers == 1
    assert len(placement.regions) == 31
    frame = placement.frame
    assert (frame["free_bytes"] >= 0).all()
    assert (frame["rows"] == mesh[0]).all()
    assert placement.path[0] is placement.path[-1]


def test_regions_are_inside_the_wafer_and_apart():
    for config, mesh, dtype in ((SMOLLM2, (30, 40), "float32"), (LLAMA3_8B, (360, 360), "float16")):
        hw = wse2(*mesh)
        used = {}
        for region in place(config, hw, dtype=dtype).regions:
            (y, x), (height, width) = region.origin, region.mesh
            assert y + height <= hw.device_mesh[0]
            assert x + width <= hw.device_mesh[1]
            for other in used.setdefault(region.wafer, []):
                (b, a), (tall, wide) = other.origin, other.mesh
                assert y >= b + tall or b >= y + height or x >= a + wide or a >= x + width
            used[region.wafer].append(region)


def test_weights_take_what_their_parameters_take():
    """On a region that divides everything there is no padding: parameters over PEs."""
    memory = layer_bytes(LayerLayout(SMOLLM2, (24, 24)), "float32", 24, 1)
    parameters = 3 * 576 * 1536 + 2 * 576 * 576 + 2 * 576 * 192
    norms = 2 * 576 / 24  # replicated along x
    assert memory.weights_bytes == 4 * (parameters / 576 + norms)
    assert memory.kv_bytes == 2 * 4 * 192 / 24
    half = layer_bytes(LayerLayout(SMOLLM2, (24, 24)), "bfloat16", 24, 1)
    assert 2 * half.weights_bytes == memory.weights_bytes


def test_a_larger_model_takes_several_wafers():
    placement = place(LLAMA3_8B, wse2(360, 360), context=4096, dtype="float16")
    assert placement.wafers == 9  # four regions of 360x360 fit a wafer
    assert [r.name for r in placement.regions][:2] == ["embedding", "layer 0"]
    assert placement.regions[-1].name == "head"
    assert placement.path == placement.regions


def test_kv_capacity_is_the_last_context_that_fits():
    hw = wse2(24, 24)
    capacity = kv_capacity(LayerLayout(SMOLLM2, hw.mesh), hw, "float32")
    assert capacity % 24 == 0
    assert place(SMOLLM2, hw, context=capacity).kv_capacity == capacity
    with pytest.raises(WaferError, match=f"{capacity + 1:,} tokens are over the KV capacity"):
        place(SMOLLM2, hw, context=capacity + 1)


def test_hops_between_regions():
    first, second, *_ = place(SMOLLM2, wse2(24, 24)).regions[1:]
    assert first.hops_to(second) == 24  # from its last column to the neighbour's last
    assert second.hops_to(first) == 24
    assert first.hops_to(first) <= 12


@pytest.mark.parametrize(
    ("mesh", "options", "message"),
    [
        ((20, 20), {}, r"a layer's region of 20x20 PEs needs [\d,]+ bytes per PE \([\d,]+ of them "
         r"weights in float32\), wse2 has 44,976 for data: .* smallest square that fits is 23x23"),
        ((37, 36), {"prompt": 4000}, r"pads sizes to blocks, lcm\(37, 36\) = 1,332 of them"),
        ((24, 24), {"context": 9000}, "KV capacity of a layer's region of 24x24 PEs: 2,664 tokens"),
        ((24, 24), {"context": 1000, "prompt": 1000}, "for a prompt of 1,000 tokens"),
        ((24, 24), {"context": 0}, "context=0: choose at least 1"),
        ((24, 24), {"context": 1.5}, r"context is 1\.5: give a whole number"),
        ((24, 24), {"prompt": -1}, "prompt=-1: choose at least 1"),
        ((24, 24), {"batch": True}, "batch is True: give a whole number"),
        ((24, 24), {"batch": None}, "batch is None: give a whole number"),
        ((24, 24), {"dtype": "int8"}, "choose one of float32"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_clear_line(mesh, options, message):
    with pytest.raises(WaferError, match=message) as error:
        place(SMOLLM2, wse2(*mesh), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("config", ["llama3-8b", None, {"hidden_size": 64}])
def test_a_name_is_no_configuration(config):
    with pytest.raises(WaferError, match=r"give a DecoderConfig, such as .*model_config\("):
        place(config, wse2(24, 24))


def test_a_vocabulary_that_no_region_holds():
    config = read_config({**TINY, "vocab_size": 1 << 23})
    with pytest.raises(WaferError, match=r"region of the embedding needs .* even on the whole toy"):
        place(config, hardware("toy", mesh=(8, 8)))


def test_a_model_too_large_for_any_region():
    with pytest.raises(WaferError, match=r"smaller dtype, .* no square region of toy is enough"):
        place(LLAMA3_8B, hardware("toy", mesh=(8, 8)))


def test_the_vocabulary_takes_more_rows_where_columns_do_not_suffice():
    placement = place(SMOLLM2, wse2(24, 24).replace(device_mesh=(994, 100)))
    assert placement.embedding.mesh == (48, 58)
    assert placement.frame["free_bytes"].ge(0).all()
    assert (placement.regions[0].mesh, placement.regions[1].origin) == ((48, 58), (0, 58))
    assert placement.regions[2].origin == (48, 0)


def test_layers_that_share_a_region_share_its_buffers():
    hw, options = wse2(360, 360), {"context": 720, "dtype": "float16"}
    one, three = (place(LLAMA3_8B, hw, layers_per_region=n, **options) for n in (1, 3))
    (alone, shared) = (p.regions[1].memory for p in (one, three))
    assert shared.weights_bytes == 3 * alone.weights_bytes
    assert shared.kv_bytes == 3 * alone.kv_bytes
    assert shared.buffers_bytes == alone.buffers_bytes
    assert three.regions[-2].memory.weights_bytes == 2 * alone.weights_bytes  # 32 = 10 * 3 + 2
    assert len(three.regions) == 11 + 2
    assert [r.name for r in three.regions[:2]] == ["embedding", "layers 0 to 2"]
    assert [i for r in three.regions for i in r.layers] == list(range(32))
    assert three.wafers < one.wafers


def test_more_sram_makes_the_head_narrower_and_slower():
    """The figures of docs/models.md."""
    decoded = {}
    for sram in (49_152, 98_304):
        hw = hardware("wse2", mesh=(704, 704)).replace(sram_bytes=sram)
        placement = place(LLAMA3_8B, hw, context=2176, prompt=2048, dtype="float16")
        decoded[placement.head.mesh[1]] = decode_costs(placement, 2112).cycles
    assert decoded == {40: 321_447, 20: 336_608}


def test_the_kv_cache_of_several_layers():
    hw = wse2(40, 40)
    options = {"dtype": "bfloat16", "layers_per_region": 2}
    capacity = place(SMOLLM2, hw, **options).kv_capacity
    assert 0 < capacity < place(SMOLLM2, hw, dtype="bfloat16").kv_capacity / 2
    assert place(SMOLLM2, hw, context=capacity, **options).frame["free_bytes"].ge(0).all()
    with pytest.raises(WaferError, match="KV capacity of a region of 2 layers of 40x40 PEs"):
        place(SMOLLM2, hw, context=capacity + 1, **options)


@pytest.mark.parametrize("dtype", ["float32", "q4_k", "fp8"])
def test_the_smallest_side_is_found_without_trying_all(dtype):
    hw = wse2(1, 1)
    fits = lambda side: (
        layer_bytes(LayerLayout(LLAMA3_8B, (side, side)), dtype, 1, 1).used_bytes <= hw.data_bytes
    )
    assert smallest_side(LLAMA3_8B, hw, dtype) == next(s for s in range(1, 751) if fits(s))
    assert smallest_side(LLAMA3_8B, hardware("toy"), dtype) is None


@pytest.mark.parametrize("layers", [0, 31, -1, 1.0, True])
def test_a_number_of_layers_that_makes_no_sense(layers):
    with pytest.raises(WaferError, match="choose 1 to 30, the layers of the model"):
        place(SMOLLM2, wse2(24, 24), layers_per_region=layers)


def test_too_many_layers_for_a_region():
    with pytest.raises(WaferError, match=r"a region of 9 layers of 24x24 PEs needs .* \d+x\d+"):
        place(SMOLLM2, wse2(24, 24), layers_per_region=9)
