"""Attention in both directions: weights, no cache, twice the pairs of a decoder, and engines that serve it."""
import json

import pytest

import simulator
from simulator.config.huggingface.reader import read_config
from simulator.config.load import load_experiment
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, path_of
from simulator.domain.kv_groups import plan_groups
from simulator.domain.kv_layout import kv_layout
from simulator.domain.memory_plan import plan
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights
from simulator.errors import InputErrors

BERT = {"architectures": ["BertModel"], "model_type": "bert", "torch_dtype": "float16", "hidden_size": 1024,
        "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30522,
        "max_position_embeddings": 512, "type_vocab_size": 2}
EXPERIMENT = """
model = {name = "bge-m3"}
hardware = {name = "l4"}
latency = {backend = "roofline"}
engine = {task = "pooling"}
[workload]
type = "synthetic"
num_requests = 60
arrival = {process = "poisson", rate_per_s = 30.0}
prompt_tokens = {distribution = "uniform", min = 1, max = 8192}
output_tokens = {distribution = "constant", tokens = 1}
"""


def deployed(model, **ways):
    return Deployment(model=model, accelerator=load_accelerator("l4"), parallelism=Parallelism(**ways))


def run(folder, changes=None, text=EXPERIMENT):
    (folder / "e.toml").write_text(text)
    return simulator.run(folder / "e.toml", changes or {})


def test_weights_are_those_of_the_published_checkpoints():
    # of BERT large: words, positions and 2 kinds of text; 24 layers; 49 norms; the pooler
    layer = 4 * (1024 * 1024 + 1024) + 2 * 1024 * 4096 + 4096 + 1024
    counted = (30522 + 512 + 2) * 1024 + 24 * layer + 49 * 2048 + 1024 * 1024 + 1024

    assert load_model("e5-large-v2").num_parameters == counted == 335_141_888
    assert load_model("bge-m3").num_parameters == 567_754_752
    assert load_model("bge-m3").max_position_embeddings == 8192         # of 8,194 positions two are the padding's


def test_nothing_is_kept_of_a_token():
    found = deployed(load_model("bge-m3"))

    assert kv_layout(found).bytes_per_token == 0
    assert plan_groups(found, 16, 8192) is None
    assert plan(found, 16, 8192, 8192, 256).kv_size.request_blocks == 0


def test_ranks_split_heads_and_hold_the_pooler_whole():
    model = load_model("e5-large-v2")
    whole, half = (rank_weights(deployed(model, tensor_parallel=ways)) for ways in (1, 2))

    assert whole.matrices == 2 * half.matrices == 24 * 12 * 1024 * 1024
    assert half.unquantized > model.pooler_parameters + model.position_parameters


@pytest.mark.parametrize("tokens", [1, 512, 8192])
def test_a_text_has_twice_the_pairs_of_a_decoder(tokens):
    own, = load_model("bge-m3").attention.passes(2.0)

    pairs = tokens * (tokens + 1) / 2           # as backends count them
    exact = 4 * 16 * 64 * tokens**2             # q.k and p.v of 16 heads of 64, for every pair
    assert own.pair_flops * pairs == pytest.approx(exact, rel=1 / tokens)


def test_a_long_text_takes_more_than_a_decoders(tmp_path):
    (tmp_path / "decoder.toml").write_text(path_of("model", "bge-m3").read_text().replace('"encoder"', '"multi_head"'))
    text = EXPERIMENT.replace("min = 1,", "min = 8192,").replace("= 60", "= 1")
    own, other = (run(tmp_path, {"model.name": name}, text).iterations["duration_ns"].sum()
                  for name in ("bge-m3", str(tmp_path / "decoder.toml")))

    assert 1.2 * other < own < 2 * other        # products are equal, pairs of query and key are doubled


def test_prompts_are_computed_whole(tmp_path):
    result = run(tmp_path)
    iterations = result.iterations

    assert result.summary["requests"]["completed"] == 60
    assert iterations["prefill_tokens"].max() <= 8192
    assert iterations["sequences"].sum() == 60              # one iteration a prompt
    assert result.summary["preemptions"] == 0


def test_fast_forward_makes_no_difference(tmp_path):
    one, other = (run(tmp_path, {"engine.fast_forward": fast}).requests for fast in (True, False))

    assert (one["completed_ns"] == other["completed_ns"]).all()


@pytest.mark.parametrize(("changes", "fault"), [
    ({"engine.enable_chunked_prefill": True}, "engine.enable_chunked_prefill: expected false, found true: bge-m3 att"),
    ({"engine.enable_prefix_caching": True}, "engine.enable_prefix_caching: expected false, found true: bge-m3 att"),
    ({"engine.max_num_batched_tokens": 4096}, "max_num_batched_tokens: expected at least max_model_len = 8192, since"),
    ({"engine.task": "generate"}, "bge-m3 has no output head"),
    ({"latency.backend": "trained_physics"}, "has no price of attention in both directions"),
])
def test_options_that_need_parts_of_a_text_are_refused(changes, fault, tmp_path):
    with pytest.raises(InputErrors, match=fault):
        run(tmp_path, changes)


def test_options_are_off_by_rule(tmp_path):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    engine = load_experiment(tmp_path / "e.toml").engine

    assert not engine.enable_prefix_caching
    assert not engine.parameters.enable_chunked_prefill
    assert engine.parameters.max_num_batched_tokens == 8192


def test_the_longest_and_the_shortest_text(tmp_path):
    for tokens in (1, 8192):
        text = EXPERIMENT.replace("min = 1, max = 8192", f"min = {tokens}, max = {tokens}").replace("= 60", "= 2")
        assert run(tmp_path, text=text).summary["requests"]["completed"] == 2


@pytest.mark.parametrize("architecture", ["XLMRobertaForSequenceClassification", "RobertaForMaskedLM", "BertModel"])
def test_heads_of_encoders_are_left_out(architecture, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BERT | {"architectures": [architecture]}))
    model = read_config(tmp_path)

    assert not model.has_head
    assert not model.is_causal
    assert model.max_position_embeddings == 512 - 2 * ("Roberta" in architecture)
