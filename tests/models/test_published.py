"""Cost models of WaferLLM's kernels and its baselines, against sums by hand and published rates."""

import math

import pytest

from wafer_jax import WaferError, hardware
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.published import a100, ladder, t10, waferllm
from wafer_jax.models.published.local_product import MAP_CALL_CYCLES, product_cycles
from wafer_jax.models.published.tiles import Product, groups_of, tiles_of

MODELS = ("llama3-8b", "llama2-13b", "codellama-34b", "qwen2-72b")


def wafer(side):
    return hardware("wse2", (side, side))


@pytest.mark.parametrize(
    ("model", "side", "groups", "dim", "seq", "ffn"),
    [
        ("llama3-8b", 360, 18, 4320, 4320, 14400),
        ("llama3-8b", 420, 20, 4200, 4200, 14700),
        ("llama3-8b", 660, 22, 4620, 4620, 14520),
        ("qwen2-72b", 420, 20, 8400, 4200, 29820),
        ("qwen2-72b", 540, 20, 8640, 4320, 29700),
        ("qwen2-72b", 600, 24, 8400, 4200, 30000),
    ],
)
def test_sizes_are_those_of_the_published_configurations(model, side, groups, dim, seq, ffn):
    tiles = tiles_of(wafer(side), model_config(model), 4096)
    assert (tiles.hidden * side, tiles.context * side, tiles.ffn * side) == (dim, seq, ffn)
    assert groups_of(side) == groups


def test_a_decode_layer_by_hand():
    """LLaMA3-8B on 420 x 420: 10 elements of the embedding and the context, 35 of the SwiGLU."""
    launch, core, hop = 16, 5, 1

    def allreduce(words):
        in_groups = 10 * (launch + core + hop + words) + launch + words  # 21 PEs, the root between
        over_roots = 10 * (launch + core + 21 * hop + words)  # 20 roots, 10 before the last
        back = launch + core + 220 * hop + words
        return in_groups + over_roots + back

    vector = lambda n, times=1: math.ceil(times * (6.4 + math.ceil(n / 4)))
    product = lambda k, n: math.ceil((1 + k) * (6.4 + math.ceil(n / 4)))
    reciprocal, exp = 6, 3
    sums = [1, 15, 5, 1, 1, 5, 5, 1, 35, 5]
    products = 6 * product(10, 10) + 2 * product(10, 35) + product(35, 10)
    norms = 2 * (vector(10) + vector(1, reciprocal) + vector(10, 2))
    softmax = vector(10) + vector(10, exp + 2) + vector(1, reciprocal) + vector(10)
    others = vector(5, 12) + vector(10) + vector(35, exp + reciprocal + 3) + 2 * vector(10)
    by_hand = sum(map(allreduce, sums)) + products + norms + softmax + others
    costs = waferllm.decode_costs(wafer(420), model_config("llama3-8b"), 4096)
    assert costs.layer_cycles == by_hand
    assert costs.layers_tokens_per_s == pytest.approx(1.1e9 / (32 * by_hand))
    assert 1.1e9 / (32 * by_hand) == pytest.approx(2699.9, rel=0.06), "table 4"


def test_a_baseline_layer_by_hand():
    """LLaMA3-8B on 420 x 420 again."""
    hw, config = wafer(420), model_config("llama3-8b")
    product = lambda k, n: math.ceil((1 + k) * (6.4 + math.ceil(n / 4)))
    local = 6 * product(10, 10) + 2 * product(10, 35) + product(35, 10)
    chains = 13 * 2 * 419 * 6 + 2 * (4 * 1 + 7 * 5 + 2 * 18)
    assert t10.decode_costs(hw, config, 4096).layer_cycles == local + chains
    words = 6 * 50 + 3 * 175
    fetches = 9 * ladder.ACCESSES * 2 * 280 * 6 + 420 // 2 * 5 * words
    assert ladder.decode_costs(hw, config, 4096).layer_cycles == local + fetches


def test_a_prefill_step_of_t10_by_hand():
    """Fetches of 9 x 9 and 9 x 9 elements on 480 x 480, 240 of either through the middle."""
    costs = t10.prefill_costs(wafer(480), model_config("llama3-8b"), 4096)
    q = costs.layer[0]
    fetches = 2 * (2 * (2 * 16 + 9) + 5) + 5 * (41 + 41)
    local = product_cycles(wafer(480), Product("q", 9, 9, 9))
    assert q.cycles == 480 * (local + 240 * fetches)
    assert q.idle_cycles == 0


def test_columns_that_start_anywhere_take_half_the_lanes():
    of = lambda rows: product_cycles(wafer(480), Product("", rows, 1, 8))
    assert of(8) - of(4) == 8, "two groups of four instead of one"
    assert of(7) - of(8) == 8 * 2, "four groups of two instead of two of four"
    assert of(8) == round(8 * (6.4 + 2)), "the sweeps that the set-up comes from"
    assert of(4) > MAP_CALL_CYCLES


@pytest.mark.parametrize("model", MODELS)
def test_rates_over_the_grid(model):
    config = model_config(model)
    prefill = [waferllm.prefill_costs(wafer(n), config, 4096) for n in (480, 600, 720)]
    decode = [waferllm.decode_costs(wafer(n), config, 4096) for n in (420, 540, 660)]
    rates = [c.layers_tokens_per_s for c in prefill]
    assert rates == sorted(rates)
    rates = [c.layers_tokens_per_s for c in decode]
    assert rates == sorted(rates, reverse=True)
    for costs in (*prefill, *decode):
        assert all(o.idle_cycles >= 0 for o in costs.layer)


def test_a_mesh_that_is_not_square_is_refused():
    config = model_config("llama3-8b")
    for kernels in (waferllm, t10, ladder):
        with pytest.raises(WaferError, match="must be square"):
            kernels.decode_costs(hardware("wse2", (300, 400)), config, 4096)


def test_the_roofline_of_gpus():
    config = model_config("llama3-8b")
    weights = 32 * (4096 * (4096 + 1024 + 1024 + 4096 + 3 * 14336) + 2 * 4096)
    weights += 4096 + 128256 * 4096
    cache = 32 * 2 * 1024 * 4096
    seconds = 2 * (weights + cache) / 2.039e12
    assert a100.decode_tokens_per_s(config, 4096) == pytest.approx(1 / seconds)
    assert a100.decode_tokens_per_s(config, 4096, 8) == pytest.approx(8 / seconds)
    flops = 2 * weights + 2 * 4096 * 32 * 4096
    assert a100.prefill_tokens_per_s(config, 4096) == pytest.approx(312e12 / flops)
