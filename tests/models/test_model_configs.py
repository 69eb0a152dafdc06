"""Configurations of published models: their sizes as published, and where they come from."""

import json

import pytest

import wafer_jax as wj
from wafer_jax.errors import WaferError
from wafer_jax.hardware import configs_dir
from wafer_jax.models import model_config, model_names
from wafer_jax.models.model_configs import model_source
from wafer_jax.models.parameters import num_parameters

# As the hub counts the tensors of the published files, or transformers those of its own model.
PARAMETERS = {
    "codellama-34b": 33_743_970_304,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "llama2-13b": 13_015_864_320,
    "llama3-8b": 8_030_261_248,
    "minimax-m2": 228_689_764_864,
    "qwen2-72b": 72_706_203_648,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-8b": 8_190_735_360,
    "qwen3.5-27b": 26_895_998_464,
    "qwen3.5-35b-a3b": 34_660_610_688,
    "qwen3.5-9b": 8_953_803_264,
}


def test_all_are_checked():
    assert set(model_names()) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_sizes_are_the_published_ones(name):
    assert num_parameters(model_config(name)) == PARAMETERS[name]


def test_every_model_says_where_it_comes_from():
    for name in model_names():
        assert "on the Hugging Face hub" in model_source(name)


def test_files_have_a_source_and_a_configuration():
    for path in (configs_dir() / "models").glob("*.json"):
        assert set(json.loads(path.read_text())) == {"source", "config"}


def test_a_published_model_is_placed_without_weights():
    placement = wj.models.place(
        wj.models.model_config("qwen3-8b"), wj.hardware("wse2", mesh=(512, 512)), dtype="bfloat16"
    )
    assert placement.regions[1].layers == range(1)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = wj.models.nothing


def test_an_unknown_model():
    with pytest.raises(
        WaferError, match="unknown model 'llama9'; known are codellama-34b, gpt-oss"
    ):
        model_config("llama9")
    for name in (None, 8, ["llama3-8b"]):
        with pytest.raises(WaferError, match="unknown model "):
            model_config(name)  # pyright: ignore[reportArgumentType]
