import numpy as np
import pytest

from wafer_jax.models import mesh_llama

STAGES = ["embedding", "layer 0", "layer 1", "layer 2", "logits"]


def test_a_model_that_passes(wafer, tiny):
    done = wafer("check", tiny, "--mesh", "3x4", "--no-transformers", "--json")
    record = done.json
    assert record["passes"] is True
    assert record["first_departure"] is None
    assert len(record["prompt_ids"]) == 16  # no tokenizer: random ids
    assert (record["level"], record["seed"], record["mesh"]) == ("bulk", 0, [3, 4])
    assert list(record["comparisons"]) == [
        "mesh prefill against dense",
        "mesh decode against dense",
    ]
    for rows in record["comparisons"].values():
        assert [row["stage"] for row in rows] == STAGES
        assert 0 < max(row["relative"] for row in rows) < 1e-5
    other = wafer("check", tiny, "--mesh", "3x4", "--no-transformers", "--seed", "1", "--json").json
    assert other["prompt_ids"] != record["prompt_ids"]


@pytest.mark.hf
def test_against_transformers(wafer, tiny):
    pytest.importorskip("transformers")
    done = wafer("check", tiny, "--mesh", "3x4", "--ids", "5,6,7", "--decode-tokens", "1")
    assert done.code == 0
    assert "dense against transformers" in done.out
    assert "passed" in done.out


def test_the_first_layer_that_departs_is_named(wafer, tiny, monkeypatch):
    """One weight of layer 1 is wrong on the mesh: layer 0 passes, the blame falls on layer 1."""
    true = mesh_llama.lay_out

    def wrong(weights, *layouts):
        name = "model.layers.1.mlp.up_proj.weight"
        changed = np.array(weights[name])
        changed[3, 5] += 0.5
        return true({**weights, name: changed}, *layouts)

    monkeypatch.setattr(mesh_llama, "lay_out", wrong)
    arguments = ("check", tiny, "--mesh", "3x4", "--no-transformers", "--decode-tokens", "1")
    done = wafer(*arguments)
    assert done.code == 1
    (verdict,) = (line for line in done.out.splitlines() if line.startswith("failed"))
    assert "mesh prefill against dense departs first at layer 1, by " in verdict
    done = wafer(*arguments, "--json")
    assert done.code == 1
    assert '"stage": "layer 1"' in done.out
    done = wafer(*arguments, "--tolerance", "10")
    assert done.code == 0


def test_without_transformers_it_says_so(wafer, tiny, monkeypatch):
    from wafer_jax.cli import transformers_reference

    monkeypatch.setattr(transformers_reference, "is_installed", lambda: False)
    done = wafer("check", tiny, "--mesh", "3x4", "--decode-tokens", "1")
    assert done.code == 0
    assert "transformers is not installed" in done.out
