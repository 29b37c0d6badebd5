"""The text of a model's file says what the model is, and no more."""
import importlib.util
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.test_model_configs import EXPECTED, FOLDER
from simulator.config.huggingface.reader import read_config
from simulator.config.model_file import model_toml
from simulator.domain.facts import load_model, names
from simulator.errors import InputErrors
from support.published_configs import CONFIGS

SPEC = importlib.util.spec_from_file_location("model_file_tool", Path(__file__).parents[2] / "tools/model_file.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


def read_again(model, tmp_path):
    path = tmp_path / f"{model.name}.toml"
    path.write_text(model_toml(model))
    return load_model(str(path))


@pytest.mark.parametrize("name", names("model"))
def test_a_shipped_model_is_read_again(name, tmp_path):
    model = load_model(name)

    assert read_again(model, tmp_path) == model


@pytest.mark.parametrize("name", EXPECTED)
def test_the_model_of_a_config_is_read_again(name, tmp_path):
    try:
        model = replace(read_config(FOLDER / name), name=name)
    except InputErrors as error:
        pytest.skip(str(error))

    assert read_again(model, tmp_path) == model


def test_defaults_are_left_out_and_counts_are_readable(tmp_path):
    text = model_toml(replace(load_model("llama-3.1-8b"), note="context 131072"))

    assert "vocab_size = 128_256\n" in text and "qkv_bias" not in text
    assert 'note = "context 131072"\n' in text


def test_the_tool_writes_a_file_whose_count_is_the_published_one(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["qwen3-0.6b"]))
    counted = read_config(tmp_path).num_parameters
    words = [str(tmp_path), "--hub", "Someone/New-1B", "--out", str(tmp_path / "new-1b.toml"), "--parameters"]

    assert tool.main([*words, str(counted + 1)]) == 2
    assert not (tmp_path / "new-1b.toml").exists()
    assert "a file that differs is not written" in capsys.readouterr().err
    assert tool.main([*words, str(counted)]) == 0
    model = load_model(str(tmp_path / "new-1b.toml"))
    assert (model.hf_id, model.num_parameters, model.published.parameters) == ("Someone/New-1B", counted, counted)
