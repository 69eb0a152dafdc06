import numpy as np
import pytest

from wafer_jax.models import mesh_model

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
    true = mesh_model.lay_out

    def wrong(weights, *layouts):
        name = "model.layers.1.mlp.up_proj.weight"
        changed = np.array(weights[name])
        changed[3, 5] += 0.5
        return true({**weights, name: changed}, *layouts)

    monkeypatch.setattr(mesh_model, "lay_out", wrong)
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


def test_a_packed_model_and_what_sums_in_float16_cost(wafer, tiny):
    """The reference is packed alike, so the same bar holds; rounded sums are reported beside it."""
    options = ("--mesh", "3x4", "--no-transformers", "--decode-tokens", "2", "--dtype", "q4_1")
    record = wafer("check", tiny, *options, "--accumulate", "float16", "--json").json
    assert (record["dtype"], record["accumulate"], record["passes"]) == ("q4_1", "float16", True)
    for rows in record["comparisons"].values():
        assert 0 < max(row["relative"] for row in rows) < 1e-5
    sums = record["sums_in_float16"]
    assert sums["steps"] == 2
    assert 0 < sums["max_difference"] < 0.05 * sums["max_magnitude"]
    shown = wafer("check", tiny, *options, "--accumulate", "float16").out
    assert "weights in q4_1" in shown
    assert "Sums in float16: the logits of 2 decoded tokens are within" in shown


def test_precisions_that_do_not_exist(wafer, tiny):
    assert "dtype 'int8': choose one of float32" in wafer("check", tiny, "--dtype", "int8").error
    assert "cannot be run in q4_k, only placed" in wafer("check", tiny, "--dtype", "q4_k").error
    assert 'choose "float32" or' in wafer("generate", tiny, "--accumulate", "bfloat16").error
    assert "dtype 'int8'" in wafer("generate", tiny, "--ids", "1", "--dtype", "int8").error
