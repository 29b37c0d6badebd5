"""Editors put a mark in front of UTF-8: each kind of file that users give is read as without it."""
import codecs
import json

import pytest

from simulator.config.huggingface.reader import read_config
from simulator.domain.facts import load_accelerator, load_model, path_of
from simulator.server_line.facts.checkpoints import checkpoint_of
from simulator.server_line.sources.read import launches_from
from simulator.study.measured.source import Source
from simulator.study.planning.question import _read_prices

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100,
          "max_position_embeddings": 512, "torch_dtype": "bfloat16", "tie_word_embeddings": False}
PRICES = "[prices.l4]\nper_gpu_hour = 1.0\ncurrency = 'EUR'\nsource = 's'\ndate = '2026-01-01'\n"
FILES = {
    "model.toml": (path_of("model", "llama-3.1-8b").read_text(), load_model),
    "card.toml": (path_of("hardware", "l4").read_text(), load_accelerator),
    "config.json": (json.dumps(CONFIG), lambda path: (read_config(path), checkpoint_of("m", str(path)))),
    "start.sh": ("vllm serve meta-llama/Llama-3.1-8B \\\n  --max-model-len 4096\n",
                 lambda path: [each.argv for each in launches_from(str(path), {})]),
    "prices.toml": (PRICES, lambda path: _read_prices(str(path))),
    "result.json": ('{"duration": 1.5}', lambda path: Source(str(path)).keys),
}


@pytest.mark.parametrize("name", FILES)
def test_a_mark_changes_nothing(name, tmp_path):
    text, read = FILES[name]
    path, found = tmp_path / name, []
    for content in (text.encode(), codecs.BOM_UTF8 + text.encode(), codecs.BOM_UTF8 + text.replace(
            "\n", "\r\n").encode()):
        path.write_bytes(content)
        found.append(read(path))

    assert found[0] == found[1] == found[2]
