"""[latency.host]: what the engine waits for, and what stands in where nothing is said."""
import pytest

from simulator.api import run
from simulator.domain.host_defaults import FRONT_END_US, SYNCHRONOUS_US, vllm_host_us
from simulator.latency.linear import Linear
from support.operator_profiles import write_tables

PLAIN = """
model = {{config = "dense.json"}}
hardware = {{name = "h100-sxm-80gb"}}
engine = {{async_scheduling = {is_async}, cuda_graphs = {{mode = "none"}}}}
latency = {{backend = "operators", path = "tables", cache_directory = "cache"{host}}}
[workload]
type = "synthetic"
num_requests = 1
prompt_tokens = {{distribution = "constant", value = 100}}
output_tokens = {{distribution = "constant", value = 11}}
arrival = {{process = "constant", rate_per_s = 1.0}}
"""
DENSE = """{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 1024,
"max_position_embeddings": 4096, "torch_dtype": "bfloat16", "num_attention_heads": 4, "num_key_value_heads": 2,
"intermediate_size": 128, "tie_word_embeddings": false}"""


def test_each_sequence_of_an_iteration_adds_its_share():
    model = Linear(Linear.Parameters(base_us=10.0, per_sequence_us=0.0, per_context_token_us=0.0), None)
    model.set_host(5.0, 0.0, 2.0)

    assert model.predict_iteration_ns(decode=[8] * 3) == 10_000 + 5_000 + 3 * 2_000
    assert model.predict_step_ns([((), [8]), ((), [8] * 4)], 2) == 10_000 + 5_000 + 4 * 2_000


@pytest.fixture
def experiment(tmp_path):
    write_tables(tmp_path / "tables")
    (tmp_path / "dense.json").write_text(DENSE)

    def experiment(is_async, host=""):
        path = tmp_path / "experiment.toml"
        path.write_text(PLAIN.format(is_async=str(is_async).lower(), host=host))
        return path

    return experiment


@pytest.fixture
def times_of(experiment):
    def times_of(is_async, host=""):
        request = run(experiment(is_async, host)).requests[0]
        return [(request[name] - request["arrival_ns"]) / 1e3 for name in (
            "enqueued_ns", "first_token_ns", "completed_ns")]

    return times_of


def test_vllms_front_end_stands_before_measured_kernels(times_of):
    queued, first, _ = times_of(True)
    bare_queued, bare_first, _ = times_of(True, ', host = {defaults = "none"}')

    assert queued - bare_queued == pytest.approx(3300 + 100 * 6)
    assert first - bare_first == pytest.approx(3300 + 100 * 6 + 1800)


def test_the_host_shows_where_scheduling_is_synchronous(times_of):
    _, first, last = times_of(False)
    _, bare_first, bare_last = times_of(False, ', host = {defaults = "none"}')

    assert (last - first) - (bare_last - bare_first) == pytest.approx(10 * (600 + 48))


def test_what_is_given_wins(times_of):
    queued, _, _ = times_of(True, ", host = {queue_base_us = 50.0}")
    bare, _, _ = times_of(True, ', host = {defaults = "none"}')

    assert queued - bare == pytest.approx(50 + 100 * 6)


def test_what_stands_in_is_told(experiment):
    assert run(experiment(True)).summary["latency"]["host"] == FRONT_END_US | {"defaults": "vllm"}
    assert run(experiment(False)).summary["latency"]["host"] == FRONT_END_US | SYNCHRONOUS_US | {"defaults": "vllm"}
    assert "host" not in run(experiment(True, ', host = {defaults = "none"}')).summary["latency"]


def test_defaults_are_those_documented():
    assert vllm_host_us(True) == FRONT_END_US
    assert vllm_host_us(False) == FRONT_END_US | SYNCHRONOUS_US
