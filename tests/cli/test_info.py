from wafer_jax.hardware import configs_dir, hardware, preset_names
from wafer_jax.models import model_names


def test_presets_are_listed(wafer):
    record = wafer("info", "--json").json
    assert [row["preset"] for row in record["presets"]] == list(preset_names())
    shown = wafer("info").out
    for name in preset_names():
        assert name in shown
        assert hardware(name).hash in shown


def test_a_preset_with_its_sources(wafer):
    record = wafer("info", "wse2", "--json").json
    assert (record["preset"], record["preset_hash"]) == ("wse2", hardware("wse2").hash)
    assert record["level"] is record["seed"] is None
    figures = {row["key"]: row for row in record["capacities"]}
    assert figures["sram_bytes"]["value"] == 49152
    assert figures["device_mesh"]["value"] == [994, 750]
    assert all(row["source"] for row in record["capacities"])
    assert "48 KiB" in wafer("info", "wse2").out


def test_a_preset_from_a_file(wafer, tmp_path):
    text = (configs_dir() / "hardware" / "toy.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("name: toy", "name: mine").replace("4096", "8192"))
    record = wafer("info", path, "--json").json
    assert record["preset"] == "mine"
    assert record["preset_hash"] != hardware("toy").hash
    path.write_text(text + "bogus: 3\n")
    assert wafer("info", path).error.startswith("mine.yaml: unknown key bogus; known keys are")
    assert "cannot read" in wafer("info", tmp_path / "missing.yaml").error


def test_a_model_with_its_regions(wafer, tiny):
    record = wafer("info", tiny, "--mesh", "3x5", "--context", "30", "--json").json
    assert (record["preset"], record["mesh"]) == ("wse2", [3, 5])
    assert (record["name"], record["config"]["hidden_size"]) == ("tiny", 48)
    assert [row["region"] for row in record["regions"]] == ["embedding", "layer 0 to 2", "head"]
    for row in record["regions"]:
        parts = [row[f"{part}_bytes"] for part in ("weights", "kv", "buffers", "reserved")]
        assert sum(parts) == row["used_bytes"] <= row["sram_bytes"] == 49152
    more = wafer("info", tiny, "--mesh", "3x5", "--context", "60", "--json").json
    assert more["regions"][1]["kv_bytes"] == 2 * record["regions"][1]["kv_bytes"]
    shown = wafer("info", tiny, "--mesh", "3x5").out
    assert "layer 0 to 2" in shown
    assert "a layer on 3x5 PEs" in shown


def test_names_that_are_nothing(wafer):
    for name in ("llama9", "qwen2.5-99b", "Llama3-8B", "", "a" * 5000):
        error = wafer("info", name).error
        assert "is neither a preset (dojo_d1, " in error
        assert "give one of codellama-34b, " in error
        assert len(error) < 1000
    assert "no such file or folder" in wafer("info", "x/" + "a" * 5000).error


def test_what_fits(wafer, tiny):
    """The side that is named is the smallest: a layer fits there and not on one PE less."""
    record = wafer("info", tiny, "--preset", "toy", "--mesh", "30x30", "--json").json
    rows = {row["dtype"]: row for row in record["what_fits"]}
    assert rows["float16"]["smallest_side"] < rows["float32"]["smallest_side"]
    side = rows["float32"]["smallest_side"]
    small = wafer("info", tiny, "--preset", "toy", "--mesh", f"{side - 1}x{side - 1}").error
    assert f"a layer's region of {side - 1}x{side - 1} PEs needs" in small
    assert "the smallest square that fits is" in small
    assert rows["float32"]["kv_capacity"] > 0


def test_neither_preset_nor_model(wafer):
    error = wafer("info", "wse9").error
    assert "neither a preset (" in error
    assert "wse2" in error
    assert "no such file or folder" in wafer("info", "./nosuch/folder").error


def test_a_packed_model_with_its_regions(wafer, tiny):
    options = ("info", tiny, "--mesh", "3x4", "--json")
    plain, packed = wafer(*options).json, wafer(*options, "--dtype", "q4_0").json
    assert (plain["dtype"], packed["dtype"]) == ("float32", "q4_0")
    for few, many in zip(packed["regions"], plain["regions"], strict=True):
        assert few["weights_bytes"] < 0.5 * many["weights_bytes"]
    assert {"q4_1", "q4_k", "fp8", "mxfp4"} <= {row["dtype"] for row in packed["what_fits"]}
    assert "in q4_0, a layer on 3x4 PEs" in wafer(*options[:-1], "--dtype", "q4_0").out
    assert "dtype 'int8': choose one of" in wafer(*options, "--dtype", "int8").error


def test_models_are_listed(wafer):
    rows = {row["model"]: row for row in wafer("info", "--json").json["models"]}
    assert list(rows) == list(model_names())
    assert rows["qwen2-72b"]["parameters_millions"] == 72_706
    assert rows["qwen3-30b-a3b"]["family"] == "qwen3_moe"
    assert "codellama-34b" in wafer("info").out


def test_a_published_model_from_its_configuration_alone(wafer):
    options = ("--mesh", "360x360", "--dtype", "float16", "--context", "4096")
    record = wafer("info", "llama3-8b", *options, "--json").json
    assert (record["name"], record["parameters"]) == ("llama3-8b", 8_030_261_248)
    assert record["config"]["rope"]["theta"] == 500000
    assert [row["count"] for row in record["regions"]] == [1, 32, 1]
    assert record["wafers"] == 9


def test_no_more_tokens_than_the_model_was_made_for(wafer, tiny):
    assert wafer("info", tiny, "--mesh", "3x5", "--context", "64").code == 0
    error = wafer("info", tiny, "--mesh", "3x5", "--context", "65").error
    assert error == "tiny has a context of 64 tokens, not 65"


def test_without_a_mesh_a_large_model_gets_the_smallest_that_does(wafer, tiny):
    assert wafer("info", "smollm2", "--json").json["mesh"] == [24, 24]
    record = wafer("info", "gpt-oss-120b", "--dtype", "mxfp4", "--json").json
    side = {row["dtype"]: row["smallest_side"] for row in record["what_fits"]}["mxfp4"]
    assert record["mesh"] == [side, side]
    assert "no square region of toy is enough" in wafer("info", "qwen3-8b", "--preset", "toy").error
    assert wafer("info", tiny, "--preset", "toy", "--json").json["mesh"] == [24, 24]


def test_layers_that_share_a_region(wafer):
    options = ("--mesh", "704x704", "--dtype", "float16", "--layers-per-region", "12", "--json")
    record = wafer("info", "llama3-8b", *options).json
    named = {row["region"]: row["count"] for row in record["regions"]}
    assert named == {"embedding": 1, "layers 0 to 23": 2, "layers 24 to 31": 1, "head": 1}
    assert {row["program_bytes"] for row in record["regions"]} == {14_480}
    assert "choose 1 to 32" in wafer("info", "llama3-8b", "--layers-per-region", "33").error


def test_experts_on_regions(wafer):
    options = ("info", "qwen3-30b-a3b", "--mesh", "240x240", "--dtype", "bfloat16", "--expert-grid")
    record = wafer(*options, "4x4", "--json").json
    assert record["expert_grid"] == [4, 4]
    assert {row["weights_bytes"] for row in record["regions"] if "layer" in row["region"]} == {
        23206
    }
    assert wafer(*options, "4").error.startswith("--expert-grid '4': expected rows x columns")
    assert "choose no more regions than experts" in wafer(*options, "12x12").error


def test_what_fits_has_the_experts_where_they_are_asked_for(wafer):
    options = ("info", "qwen3-30b-a3b", "--dtype", "float16", "--expert-grid", "4x4", "--json")
    record = wafer(*options).json
    fits = {row["dtype"]: row["smallest_side"] for row in record["what_fits"]}
    assert record["mesh"] == [fits["float16"]] * 2
    whole = wafer(*options[:-3], "--json").json
    fits_whole = {row["dtype"]: row["smallest_side"] for row in whole["what_fits"]}
    assert fits["float16"] < fits_whole["float16"]


def test_regions_of_alternating_layers_are_told_apart(wafer):
    options = ("info", "gpt-oss-20b", "--dtype", "mxfp4", "--context", "4096", "--json")
    named = lambda *more: [row["region"] for row in wafer(*options, *more).json["regions"][1:-1]]
    assert named() == ["layers 0, 2, ..., 22", "layers 1, 3, ..., 23"]
    shared = named("--layers-per-region", "5")
    assert shared == ["layers 0 to 4, 10 to 14", "layers 5 to 9, 15 to 19", "layers 20 to 23"]


def test_a_program_that_does_not_fit_as_a_whole(wafer, tiny):
    options = ("info", "smollm2", "--mesh", "24x24", "--context")
    assert "does not fit as a whole" in wafer(*options, "128").out
    assert "All of it fits" in wafer("info", "smollm2", "--mesh", "32x32").out
    assert "nothing more is known" in wafer("info", tiny, "--preset", "toy", "--mesh", "30x30").out


def test_a_known_model_has_no_weights(wafer):
    error = wafer("generate", "llama3-8b", "--prompt", "x").error
    assert "known by its configuration only" in error
