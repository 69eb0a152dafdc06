import numpy as np
import pytest

from wafer_jax.cli import generate, generation
from wafer_jax.models import checkpoints
from wafer_jax.models.dense import DenseModel

MESH = ("--mesh", "3x4")


@pytest.fixture(scope="module")
def expected(tiny):
    model = DenseModel.from_checkpoint(checkpoints.load(tiny))
    return model.generate([5, 6, 7], max_new_tokens=6)


def test_greedy_ids_with_their_cycles(wafer, tiny, expected):
    record = wafer(
        "generate", tiny, "--ids", "5,6,7", *MESH, "--max-new-tokens", "6", "--json"
    ).json
    assert record["ids"] == expected
    assert record["text"] is None
    assert (record["level"], record["cycles_level"]) == ("bulk", "cost")
    assert (record["preset"], record["mesh"], record["seed"]) == ("wse2", [3, 4], 0)
    rates = {row["phase"]: row for row in record["rates"]}
    for phase, operators in record["operators"].items():
        total = sum(row["times"] * row["cycles"] for row in operators)
        assert total == rates[phase]["total_cycles"]
        assert sum(row["share_percent"] for row in operators) == pytest.approx(100)
        for row in operators:
            parts = ("compute_cycles", "communication_cycles", "idle_cycles")
            assert sum(row[part] for part in parts) == row["cycles"]
    assert record["cycles"] > rates["prefill"]["total_cycles"]
    assert record["regions"][1]["region"] == "layer 0 to 2"


def test_what_people_read(wafer, tiny, talking, expected):
    done = wafer("generate", tiny, "--ids", "5,6,7", *MESH, "--max-new-tokens", "6")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "The model has no tokenizer, so these are the new token ids:"
    assert lines[1] == ",".join(map(str, expected))
    done = wafer("generate", talking, "--prompt", "w5 w6 w7", *MESH, "--max-new-tokens", "6")
    assert all(f"w{i}" in done.out.splitlines()[0] for i in expected)
    for words in ("everything\n", "gate, up", "KV shift", "hand-offs", "level: cost", "of 48 KiB"):
        assert words in done.out


def test_the_chat_template(wafer, talking, tiny):
    line = (*MESH, "--max-new-tokens", "1", "--json")
    record = wafer("generate", talking, "--prompt", "w8 w9", "--chat", *line).json
    assert record["prompt_ids"] == [1, 8, 9, 2]
    assert wafer("generate", talking, "--prompt", "w8 w9", *line).json["prompt_ids"] == [8, 9]


def test_temperature_draws_by_the_seed(wafer, tiny):
    def ids(seed, temperature="3"):
        line = ("--ids", "5,6,7", *MESH, "--max-new-tokens", "6", "--json")
        done = wafer("generate", tiny, *line, "--seed", seed, "--temperature", temperature)
        return done.json["ids"]

    assert ids(1) == ids(1) != ids(2)
    assert ids(1, "0.001") == ids(2, "0.001") == ids(1, "0")


def test_draws_follow_the_softmax():
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    rng = np.random.default_rng(0)
    counts = np.bincount([generation.draw(logits, 1.0, rng) for _ in range(4000)], minlength=3)
    np.testing.assert_allclose(counts / 4000, [0.5, 0.3, 0.2], atol=0.03)
    counts = np.bincount([generation.draw(logits, 0.5, rng) for _ in range(4000)], minlength=3)
    np.testing.assert_allclose(counts / 4000, np.array([25, 9, 4]) / 38, atol=0.03)


def test_a_plot(wafer, tiny, tmp_path):
    path = tmp_path / "plot.png"
    done = wafer("generate", tiny, "--ids", "5", *MESH, "--max-new-tokens", "1", "--plot", path)
    assert done.code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"Plot: {path}" in done.out


def test_plots_that_cannot_be_written_cost_no_time(wafer, tiny, tmp_path, monkeypatch):
    def load(*_):
        raise AssertionError("the model was loaded first")

    monkeypatch.setattr(generate, "load", load)
    line = ("generate", tiny, "--ids", "5", *MESH, "--plot")
    missing = tmp_path / "missing" / "plot.png"
    assert f"cannot write {missing}: no folder" in wafer(*line, missing).error
    assert "ends in .png, .svg or .pdf" in wafer(*line, tmp_path / "plot.doc").error
    assert "it is a folder" in wafer(*line, tmp_path).error
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_no_file(wafer, tiny, tmp_path, monkeypatch):
    def half(figure, path, **options):
        path.write_bytes(b"\x89PNG")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    path = tmp_path / "plot.png"
    done = wafer("generate", tiny, "--ids", "5", *MESH, "--max-new-tokens", "1", "--plot", path)
    assert done.code == 2
    assert done.err == f"error: cannot write {path}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []
