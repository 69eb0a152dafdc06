import json

import pytest

from wafer_jax.cli import demo
from wafer_jax.cli.output import Output
from wafer_jax.hardware import hardware
from wafer_jax.models import checkpoints, fabric_check
from wafer_jax.models.mesh_model import MeshModel


def test_the_sections_of_a_demo(talking, capsys, monkeypatch):
    """On a tiny model; what it finds is what it shows and what it writes.

    MeshGEMM takes ten seconds to compile and has its own tests, so MeshGEMV runs in its place.
    """
    matvec = lambda model, *, tokens, seed, progress: fabric_check.check_matvec(model, seed=seed)
    monkeypatch.setattr(fabric_check, "check_matmul", matvec)
    checkpoint = checkpoints.load(talking)
    model = MeshModel(checkpoint, hardware("wse2", (3, 4)))
    tokens = [5, 6, 7]
    found = demo.investigate(Output(False), checkpoint, model, tokens, 5, seed=1)
    assert found.distance.steps == found.distance.same_tokens == len(found.generation.ids)
    assert found.distance.max_difference < 1e-4
    assert [check.passes for check in found.fabric] == [True, True]
    demo.show(Output(False), checkpoint, "w5 w6 w7", found)
    shown = capsys.readouterr().out
    titles = ("Text (", "Distance from", "Speed", "Cycles of every", "SRAM of", "on the fabric (")
    places = [shown.index(title) for title in titles]
    assert places == sorted(places)
    assert all(shown.count(f"level: {level}") for level in ("bulk", "cost", "fabric"))
    demo.write(Output(True), found, seed=1)
    record = json.loads(capsys.readouterr().out)
    assert (record["command"], record["preset"], record["seed"]) == ("demo", "wse2", 1)
    assert record["distance_to_dense"]["same_tokens"] == found.distance.steps
    assert [row["equal"] for row in record["fabric"]] == [True, True]
    assert {"ids", "rates", "operators", "regions", "cycles"} <= set(record)


def test_refusals_come_before_the_weights(wafer, monkeypatch):
    monkeypatch.setattr(checkpoints, "load", lambda _: pytest.fail("loaded"))
    assert "expected rows x columns" in wafer("demo", "--mesh", "24").error
    assert "unknown preset" in wafer("demo", "--preset", "wse9").error
    assert "no folder" in wafer("demo", "--plot", "/missing/plot.png").error


@pytest.mark.slow
def test_the_whole_demo(wafer):
    record = wafer("demo", "--json").json
    assert record["text"].startswith("A computer chip is a tiny")
    assert record["distance_to_dense"]["max_difference"] <= 2e-3
    assert record["distance_to_dense"]["same_tokens"] == len(record["ids"])
    assert [row["equal"] for row in record["fabric"]] == [True, True]
