"""Transfer times that Mooncake published, of one request at a time; base and rate are its fits, to all nine lengths.

Sources: kvcache-ai/Mooncake@3b5a5941, docs/source/performance/vllm/vllm-v1-pd-performance.md (whose GB are GiB, with a
template of some 14 tokens before each prompt) and docs/source/performance/sglang/sglang-benchmark-results-v1.md.
"""
from types import SimpleNamespace

import pytest

import simulator
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.kv_transfer import KvTransfer
from simulator.domain.parallelism import Parallelism
from simulator.engine.hand_over.plan import Network
from simulator.engine.hand_over.settings import hand_over_plan
from simulator.engine.hand_over.transport import Transport

LINE_RATE = 200.0       # GB/s of both machines: 8 ports of 200 Gbit/s; 4 of 400
TABLES = {
    "vllm": ("qwen3-8b", "h800-sxm-80gb", 380.0, 0.73, 14,
             {128: 0.54, 512: 0.92, 2048: 2.51, 8192: 8.84, 32768: 31.65}),
    "sglang": ("qwen3-235b-a22b", "h20-96gb", 1840.0, 0.855, 0,
               {128: 2.07, 512: 2.98, 2048: 6.43, 8192: 20.31, 32768: 76.78}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_transfer_alone_takes_what_was_measured(name):
    model, hardware, base_us, share, extra_tokens, rows = TABLES[name]
    ends = 2 * [Deployment(model=load_model(model), accelerator=load_accelerator(hardware),
                           parallelism=Parallelism(tensor_parallel=8))]
    settings = KvTransfer(base_us=base_us, bandwidth_gb_per_s=LINE_RATE * share)
    plan = hand_over_plan(settings, [("prefill", None), ("decode", None)], ends, (None, None), None, True)
    seats = [SimpleNamespace(replica=i, pool=i, place=0, node=i) for i in range(2)]
    transport = Transport(Network(seats, plan), plan.contention, plan.base_ns)

    for tokens, measured_ms in rows.items():
        num_bytes = (tokens + extra_tokens) * plan.pairs[0, 1].token_bytes
        assert transport.alone(0, 1, num_bytes) / 1e6 == pytest.approx(measured_ms, rel=0.07)


PAIR = """
model = {name = "qwen3-8b"}
hardware = {name = "h800-sxm-80gb"}
engine = {max_model_len = 20000, enable_prefix_caching = false}
topology = {tensor_parallel = 8}
latency = {host = {output_token_us = 1800.0}}
kv_transfer = {protocol = "nixl", base_us = 380.0}
workload = {type = "synthetic", num_requests = 1, prompt_tokens = {distribution = "constant", tokens = 8206}, \
    output_tokens = {distribution = "constant", tokens = 2}, arrival = {rate_per_s = 1.0}}
pools = [{name = "p", role = "prefill"}, {name = "d", role = "decode"}]
"""


@pytest.fixture
def pair(tmp_path):
    def ran(**keys):
        path = tmp_path / "pair.toml"
        path.write_text(PAIR)
        return simulator.run(path, {f"kv_transfer.{key}": value for key, value in keys.items()}).summary

    return ran


def notes(summary):
    return [each for each in summary["diagnosis"] if "kv_transfer:" in each]


def test_ports_that_no_key_gives_are_named_and_those_of_the_page_take_its_time(pair):
    usual, own = pair(), pair(bandwidth_gb_per_s=146.0)

    assert len(notes(usual)) == 1 and "300 GB/s, 8 x 50 of h800-sxm-80gb x efficiency 0.75" in notes(usual)[0]
    assert notes(own) == [] and len(notes(pair(nics_per_transfer="rank", efficiency=0.5))) == 1
    assert usual["kv_transfer"]["duration_ms"]["mean"] == pytest.approx(8.84 / 2, rel=0.01)     # half of the measured
    assert own["kv_transfer"]["duration_ms"]["mean"] == pytest.approx(8.84, rel=0.02)


def test_the_answer_of_a_prompt_passes_the_server_of_its_replica(pair):
    usual, at_once = pair(), pair(answer_hop_us=0.0)

    assert usual["ttft_ms"]["mean"] - at_once["ttft_ms"]["mean"] == pytest.approx(1.8)
    assert pair(answer_hop_us=1800.0)["ttft_ms"] == usual["ttft_ms"]
    assert pair(protocol="mooncake")["ttft_ms"]["mean"] == at_once["ttft_ms"]["mean"]       # no answer sends it on
