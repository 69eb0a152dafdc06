import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_a_published_model(wafer):
    options = ("tune", "qwen3-8b", "--prompt", "512", "--output", "64")
    record = wafer(*options, "--json").json
    best = record["best"]
    assert (record["level"], record["preset"]) == ("cost", "wse2")
    assert record["mesh"] == best["mesh"]
    assert record["candidates"][0]["side"] == best["mesh"][0]
    assert record["context"] == 576
    refused = [row["refused"] for row in record["candidates"] if row["refused"]]
    assert any(text.startswith("SRAM: needs ") for text in refused)
    shown = wafer(*options).out
    assert "The best with another region is" in shown
    assert all(command in shown for command in record["next"])


def test_the_next_command_places_what_was_chosen(wafer):
    record = wafer("tune", "qwen3-8b", "--phase", "decode", "--json").json
    (command,) = record["next"]
    program, *arguments = shlex.split(command)
    assert program == "wafer-jax"
    info = wafer(*arguments, "--json").json
    assert (info["mesh"], info["wafers"]) == (record["best"]["mesh"], record["best"]["wafers"])
    assert info["pes"] == record["best"]["pes"]


def test_the_next_command_cuts_the_region_for_experts(wafer):
    options = ("--dtype", "q4_k", "--prompt", "256", "--output", "32", "--phase", "prefill")
    record = wafer("tune", "qwen3-30b-a3b", *options, "--json").json
    (command,) = record["next"]
    info = wafer(*shlex.split(command)[1:], "--json").json
    assert info["expert_grid"] == record["best"]["expert_grid"] != [1, 1]
    assert info["pes"] == record["best"]["pes"]
    assert "expert grid" in wafer("tune", "qwen3-30b-a3b", *options).out


def test_the_page_shows_what_it_prints(wafer):
    page = (ROOT / "docs" / "models.md").read_text()
    record = wafer("tune", "llama3-8b", "--prompt", "2048", "--output", "128", "--json").json
    assert all(line in page for line in (*record["explanation"], *record["next"]))


def test_weights_are_not_read(wafer, tiny, tmp_path):
    (tmp_path / "config.json").write_bytes((tiny / "config.json").read_bytes())
    options = ("--preset", "toy", "--prompt", "20", "--output", "9", "--json")
    record = wafer("tune", tmp_path, *options).json
    assert record["best"]["pes"] <= 64 * 64 * record["best"]["wafers"]
    (command,) = record["next"]  # no generate without weights
    assert wafer(*shlex.split(command)[1:], "--json").json["pes"] == record["best"]["pes"]


def test_the_next_command_runs_a_model(wafer, tiny):
    options = ("--preset", "toy", "--prompt", "3", "--output", "2", "--dtype", "float32", "--json")
    info, command = wafer("tune", tiny, *options).json["next"]
    assert info.startswith("wafer-jax info ")
    arguments = shlex.split(command)[1:-2]
    record = wafer(*arguments, "--ids", "5,6,7", "--json").json
    assert (len(record["ids"]), record["preset"]) == (2, "toy")


def test_mistakes(wafer, tiny):
    assert wafer("tune", "llama3-8b", "--prompt", "9000").error == (
        "llama3-8b has a context of 8,192 tokens, not 9,128"
    )
    assert "phase='train': choose one of" in wafer("tune", "llama3-8b", "--phase", "train").error
    assert "neither a preset" in wafer("tune", "llama9").error
    assert "unknown preset 'x'" in wafer("tune", "llama3-8b", "--preset", "x").error
    assert "choose one of float32" in wafer("tune", "llama3-8b", "--dtype", "int8").error
    error = wafer("tune", tiny, "--prompt", "60", "--output", "60").error
    assert error == "tiny has a context of 64 tokens, not 120"
