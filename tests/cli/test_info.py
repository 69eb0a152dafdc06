from wafer_jax.hardware import configs_dir, hardware, preset_names


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
