"""Trained weights on the emulated wafer: text, logits, and its own products on the fabric."""

import numpy as np
import pytest

from wafer_jax import hardware
from wafer_jax.models.fabric_check import check_matmul, check_matvec
from wafer_jax.models.mesh_model import MeshModel

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village at the foot of a mountain, there lived a clockmaker who",
    "Water boils at 100 degrees Celsius at sea level. On top of a high mountain the air is thinner "
    "and presses less on the surface of the water, and that is why a cook who lives there must "
    "boil an egg for a longer time than one who lives on the coast. In a pressure cooker",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
]
STEPS = 64


@pytest.fixture(scope="module")
def on_mesh(smollm2):
    return MeshModel(smollm2, hardware("wse2", mesh=(24, 24)))


def test_golden_generation(smollm2, smollm2_dense, on_mesh):
    generation = on_mesh.generate(PROMPTS[0], max_new_tokens=8, keep_logits=True)
    assert list(generation.ids) == [7042, 30, 198, 198, 504, 2988, 314, 42]
    assert generation.text == " Paris.\n\nThe answer is:"
    assert generation.logits is not None
    assert generation.logits[0].max() == pytest.approx(17.3713, abs=5e-4)
    whole, _ = smollm2_dense.forward([*generation.prompt_ids, *generation.ids[:-1]])
    assert np.abs(generation.logits - np.asarray(whole)[0, 4:]).max() <= 2e-3
    assert generation.placement.frame["free_bytes"].ge(0).all()


@pytest.mark.slow
def test_its_own_products_on_the_fabric(on_mesh):
    for check in (check_matvec(on_mesh), check_matmul(on_mesh, tokens=48)):
        assert check.passes, check


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [(24, 24), (32, 32), (18, 32)])
def test_sixty_four_greedy_steps_of_five_prompts(smollm2, smollm2_dense, mesh):
    model = MeshModel(smollm2, hardware("wse2", mesh=mesh))
    for prompt in PROMPTS:
        ids = smollm2.tokenizer.encode(prompt)
        logits, cache = smollm2_dense.prefill(ids, capacity=len(ids) + STEPS)
        differences, margins = [], []
        for token, found in model.stream(ids, max_new_tokens=STEPS, stop_ids=()):
            expected = np.asarray(logits)[0]
            differences.append(np.abs(found - expected).max())
            second, first = np.sort(expected)[-2:]
            margins.append(first - second)
            assert token == int(expected.argmax()), f"{prompt!r}: margin {margins[-1]}"
            logits, cache = smollm2_dense.decode(token, cache)
        print(f"{mesh} {prompt!r}: logits within {max(differences):.2e}, "
              f"smallest margin of the best token {min(margins):.2e}")  # fmt: skip
        assert max(differences) <= 2e-3
