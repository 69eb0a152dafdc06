"""The autotuner against an exhaustive search, and what it says of what it refuses."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.test_fuzzed_configs import or_one_line, small, small_config
from models.test_placement import SMOLLM2
from models.tiny_llama import TINY
from wafer_jax import hardware
from wafer_jax.errors import WaferError
from wafer_jax.models import autotune, model_config
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.placement import place
from wafer_jax.models.program_image import image_bytes

LLAMA3_8B = model_config("llama3-8b")
TINY_MODEL = read_config({**TINY, "max_position_embeddings": 4096})


def predicted(config, hw, *, phase, prompt, output, dtype="float16", layers=1, k=2) -> float | None:
    """Seconds, straight from placement and costs; None if it does not fit."""
    try:
        placement = place(
            config,
            hw,
            context=prompt + output,
            prompt=prompt,
            dtype=dtype,
            layers_per_region=layers,
        )
    except WaferError:
        return None
    cycles = 0
    if phase != "decode":
        cycles += prefill_costs(placement, prompt, k).cycles
        output -= 1
    if phase != "prefill":
        middle = prompt + max(1, (output + 1) // 2)
        cycles += output * decode_costs(placement, middle, k).cycles
    return hw.seconds(cycles)


@pytest.mark.parametrize("phase", ["prefill", "decode", "both"])
def test_close_to_the_best_of_all(phase):
    """Every side of a small machine, every K and every number of layers, one by one."""
    hw, request = hardware("toy"), {"prompt": 40, "output": 9, "phase": phase}
    seconds = {
        (side, k, layers): predicted(
            TINY_MODEL, hw.replace(mesh=(side, side)), layers=layers, k=k, **request
        )
        for side in range(1, 65)
        for k in (1, 2, 3)
        for layers in (1, 2, 3)
    }
    least = min(s for s in seconds.values() if s is not None)
    best = autotune(TINY_MODEL, hw, **request).best
    assert best.seconds == seconds[best.side, best.k, best.layers_per_region]
    assert best.seconds <= 1.02 * least


def test_what_it_chooses_is_what_placement_and_costs_say():
    hw = hardware("wse2")
    tuning = autotune(SMOLLM2, hw, prompt=512, output=128, dtype="bfloat16")
    best = tuning.best
    placement = place(
        SMOLLM2, tuning.hw, context=640, prompt=512, dtype="bfloat16",
        layers_per_region=best.layers_per_region,
    )  # fmt: skip
    assert tuning.hw == hw.replace(mesh=(best.side, best.side))
    assert (placement.wafers, placement.num_pes) == (best.wafers, best.pes)
    assert best.prefill == prefill_costs(placement, 512, best.k)
    assert best.decode == decode_costs(placement, 576, best.k)
    total = best.prefill.cycles + 127 * best.decode.cycles
    assert best.seconds == hw.seconds(total)
    assert tuning.candidates[0] == best


def test_the_program_counts():
    """The same machine with a smaller program holds more layers in a region."""
    hw = hardware("wse2")
    assert image_bytes(hw) == 14_480
    assert image_bytes(hardware("toy")) == hardware("toy").reserved_bytes
    large = autotune(SMOLLM2, hw, prompt=64, output=64)
    small = autotune(SMOLLM2, hw, prompt=64, output=64, program_bytes=0)
    assert (large.program_bytes, small.program_bytes) == (14_480, hw.reserved_bytes)
    assert large.best.needed_bytes <= hw.sram_bytes
    with pytest.raises(WaferError, match="program_bytes=99999: wse2 has 49,152 bytes per PE"):
        autotune(SMOLLM2, hw, program_bytes=99999)


def test_colours_are_a_budget():
    hw = hardware("wse2")
    wanted = {"prompt": 64, "output": 64, "phase": "decode"}
    free = autotune(LLAMA3_8B, hw, **wanted)
    assert free.best.colors <= 24
    resident = autotune(LLAMA3_8B, hw, resident_routes=True, **wanted)
    refused = [c for c in resident.candidates if c.refused.startswith("colours")]
    assert refused
    assert all(c.colors > 24 for c in refused)
    assert f"colours: {refused[0].colors} of 24" == refused[0].refused
    assert resident.best.seconds >= free.best.seconds
    poor = autotune(LLAMA3_8B, hw.replace(colors=5), **wanted)
    assert (poor.best.k, poor.best.colors) == (1, 5)


def test_queues_are_a_budget():
    hw = hardware("wse2").replace(input_queue_depths=(4,) * 3)
    tuning = autotune(LLAMA3_8B, hw, prompt=64, output=64, phase="decode")
    assert tuning.best.input_queues <= 3
    assert any(c.refused == "input queues: 4 of 3" for c in tuning.candidates)


def test_experts_get_parts_of_the_region():
    config, hw = model_config("qwen3-30b-a3b"), hardware("wse2")
    tuning = autotune(config, hw, prompt=256, output=32, dtype="q4_k")
    rows, columns = tuning.best.shape.expert_grid
    assert rows * columns > 1
    placement = place(
        config, tuning.hw, context=288, prompt=256, dtype="q4_k", expert_grid=(rows, columns),
        layers_per_region=tuning.best.layers_per_region,
    )  # fmt: skip
    assert tuning.best.prefill == prefill_costs(placement, 256, tuning.best.k)
    whole = [c for c in tuning.candidates if c.shape.expert_grid == (1, 1) and not c.refused]
    assert min(c.seconds for c in whole) > 2 * tuning.best.seconds
    assert f"experts on {rows}x{columns} parts" in tuning.explanation[0]


def test_wafers_are_a_budget():
    hw = hardware("wse2")
    free = autotune(LLAMA3_8B, hw, prompt=512, output=512)
    few = autotune(LLAMA3_8B, hw, prompt=512, output=512, wafers=free.best.wafers - 1)
    assert few.best.wafers < free.best.wafers
    assert few.best.seconds >= free.best.seconds
    one = autotune(LLAMA3_8B, hw, prompt=512, output=512, wafers=1)
    smallest = next(line for line in one.explanation if "no region below" in line)
    side = int(smallest.split("no region below ")[1].split("x")[0])
    assert side < min(c.side for c in one.candidates if not c.refused)
    fits = lambda side: place(
        LLAMA3_8B, hw.replace(mesh=(side, side), reserved_bytes=14_480),
        context=1024, prompt=512, dtype="float16",
    )  # fmt: skip
    assert fits(side).wafers > 1
    with pytest.raises(WaferError):
        fits(side - 1)
    with pytest.raises(WaferError, match=r"nothing that was tried fits .* wafers: \d+ of 1$"):
        autotune(model_config("qwen2-72b"), hw, wafers=1)


def test_refusals_say_what_is_short():
    hw = hardware("wse2")
    tuning = autotune(LLAMA3_8B, hw, prompt=2048, output=128)
    refused = {c.refused for c in tuning.candidates if c.refused}
    assert any(text.startswith("SRAM: needs ") and "of 49,152 bytes per PE" in text
               for text in refused)  # fmt: skip
    frame = tuning.frame
    assert list(frame["seconds"].dropna()) == sorted(frame["seconds"].dropna())
    assert (frame["refused"] == "").sum() == frame["seconds"].notna().sum()


def test_the_explanation_says_what_bounds_it():
    tuning = autotune(model_config("llama3-8b"), hardware("wse2"), prompt=2048, output=128)
    text = " ".join(tuning.explanation)
    assert tuning.best.name in text
    assert "Prefill is bound by" in text
    assert "Decode is bound by waiting for hops, ramps and other PEs" in text
    assert "The best with another region is" in text
    assert "% more time" in text
    assert not any("\n" in sentence for sentence in tuning.explanation)
    decode = autotune(model_config("llama3-8b"), hardware("wse2"), phase="decode", output=10)
    assert (
        f"for the output, decode of a token in {decode.best.decode.cycles:,} cycles ("
        in (decode.explanation[0])
    )


def test_a_longer_context_takes_room_from_layers():
    hw = hardware("wse2")
    short, long = (
        autotune(LLAMA3_8B, hw, prompt=64, output=64, context=context, phase="decode").best
        for context in (128, 8192 // 4)
    )
    assert long.needed_bytes / long.layers_per_region >= 0
    assert long.layers_per_region <= short.layers_per_region


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phase": "train"}, "phase='train': choose one of prefill, decode, both"),
        ({"prompt": 0}, "prompt=0: choose a whole number, at least 1"),
        ({"output": 1.5}, "output=1.5: choose a whole number"),
        ({"prompt": None}, "prompt=None: choose a whole number"),
        ({"output": "1"}, "output='1': choose a whole number"),
        ({"program_bytes": 1.5}, r"program_bytes is 1\.5: give a whole number"),
        ({"wafers": 0}, "wafers=0"),
        ({"context": 5}, r"context=5: 64 tokens of the prompt and 64 of the output need 128"),
        ({"context": 9999}, "a context of 2,048 tokens, not 9,999"),
        ({"dtype": "int8"}, "choose one of float32"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(WaferError, match=message):
        autotune(SMOLLM2, hardware("wse2"), **{"prompt": 64, "output": 64, **options})


def test_a_name_is_no_configuration():
    with pytest.raises(WaferError, match=r"config='llama3-8b': give a DecoderConfig"):
        autotune("llama3-8b", hardware("wse2"))  # pyright: ignore[reportArgumentType]


def test_a_model_too_large_for_any_region():
    with pytest.raises(WaferError, match=r"no square region of toy holds a layer .* 64x64 PEs"):
        autotune(LLAMA3_8B, hardware("toy"))


@settings(deadline=None, max_examples=25)
@given(
    small,
    st.sampled_from(["toy", "wse2"]),
    st.sampled_from(["float32", "q4_k", "mxfp4"]),
    st.integers(1, 60),
    st.integers(1, 60),
    st.sampled_from(["prefill", "decode", "both"]),
)
def test_a_weird_but_valid_model_is_tuned_or_refused(
    attributes, preset, dtype, prompt, output, phase
):
    config = small_config(attributes)
    assert config is not None
    hw = hardware(preset)
    hw = hw.replace(mesh=(1, 1), device_mesh=(12, 10))
    tuning = or_one_line(
        lambda: autotune(config, hw, prompt=prompt, output=output, phase=phase, dtype=dtype)
    )
    if tuning is not None:
        assert 0 < tuning.best.seconds < float("inf")
        assert tuning.best.needed_bytes <= hw.sram_bytes
        assert dataclasses.asdict(tuning.best)["refused"] == ""
