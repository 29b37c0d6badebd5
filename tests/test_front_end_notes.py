"""A rate beyond what API servers are known to take is named where they have no price."""
import pytest

import simulator

EXPERIMENT = """
model = {name = "qwen2.5-0.5b"}
hardware = {name = "h100-sxm-80gb"}
engine = {max_model_len = 64}
latency = {backend = "roofline"}
[workload]
type = "synthetic"
num_requests = 400
arrival = {process = "constant", rate_per_s = 100.0}
prompt_tokens = {distribution = "constant", tokens = 8}
output_tokens = {distribution = "constant", tokens = 2}
"""


@pytest.fixture
def said(tmp_path):
    """Return what runs say of front ends; keys with __ for dots."""
    path = tmp_path / "a.toml"

    def said(text=EXPERIMENT, **keys):
        path.write_text(text)
        summary = simulator.run(path, {name.replace("__", "."): value for name, value in keys.items()}).summary
        return [note for note in summary["diagnosis"] if "API server" in note]
    return said


def test_each_process_gets_a_hundred_requests_a_second(said):
    # 400 requests, 10 ms apart, and the last one's two tokens: 3.99 s and a few ms
    assert said() == [
        "latency.host: front_end_us is 0, so no request waits for others at an API server, of which each gets 100 "
        "requests/s; bursts of chats to vLLM 0.11 suggest 5 to 16 ms a request, 62 to 200 requests/s a process"]


@pytest.mark.parametrize("keys", [
    {"workload__arrival__rate_per_s": 60.0}, {"topology__replicas": 2}, {"latency__host__api_server_count": 2},
    {"latency__host__front_end_us": 5000.0}, {"latency__host__defaults": "none"}, {"engine__scheduler": "orca"}])
def test_rates_that_they_take_and_front_ends_with_a_price_are_not_named(said, keys):
    assert said(**keys) == []


def test_ranks_have_an_api_server_each_unless_a_number_is_given(said):
    ranks = {"topology__data_parallel": 2, "workload__arrival__rate_per_s": 100.0}
    one, = said(**ranks, latency__host__api_server_count=1)

    assert said(**ranks) == [] and "each gets 100 requests/s" in one


def test_each_pool_is_named_by_its_own_replicas(said):
    text = 'kv_transfer = {protocol = "nixl"}\n' + EXPERIMENT + """
[[pools]]
name = "prompts"
role = "prefill"
replicas = 2
[[pools]]
name = "answers"
role = "decode"
replicas = 1
"""
    note, = said(text)

    assert note.startswith("pool answers: latency.host: ") and "each gets 100 requests/s" in note
