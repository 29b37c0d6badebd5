"""What whole experiments say of outputs that were cut, and of load."""
import pytest

import simulator
from simulator.domain import records

HEAD = """
seed = 1
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
output = {iterations = false}
"""
CUT = HEAD + """
engine = {num_gpu_blocks = 400, max_model_len = 512}
latency = {backend = "linear"}
workload = {type = "trace", path = "trace.csv"}
"""
# One request at a time, 1 ms each: M/D/1.
QUEUE = HEAD + """
engine = {num_gpu_blocks = 400, max_model_len = 4096, max_num_seqs = 1}
[latency]
backend = "linear"
base_us = 1000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
[workload]
type = "synthetic"
num_requests = 5000
arrival = {process = "poisson", rate_per_s = 500.0}
prompt_tokens = {distribution = "constant", tokens = 1}
output_tokens = {distribution = "constant", tokens = 1}
"""


def run(folder, text, **overrides):
    (folder / "experiment.toml").write_text(text)
    return simulator.run(folder / "experiment.toml", overrides=overrides)


def test_reasons_of_real_outputs(tmp_path):
    rows = ["0,10,5,9", "0,10,9,5", "0,500,80,80", "0,500,12,80", "0,512,1,1"]
    head = "arrived_at,num_prefill_tokens,num_decode_tokens,max_tokens"
    (tmp_path / "trace.csv").write_text("\n".join([head, *rows]))

    result = run(tmp_path, CUT)

    reasons = [records.FINISH_NAMES[code] for code in result.requests["finish_reason"]]
    assert reasons == ["stop", "length", "max_model_len", "stop", "rejected"]
    assert result.requests["output_tokens"].tolist() == [5, 5, 12, 12, 0]
    assert result.summary["requests"]["length_capped"] == 1
    assert result.summary["diagnosis"] == [
        "of 5 requests some were not served: 1 rejected, of up to 512 prompt tokens, which are longer than "
        "max_model_len = 512 allows",
        "1 output was cut at max_model_len, request 2 first: prompt and whole output are longer; they count as "
        "completed, with the tokens they got"]


@pytest.mark.parametrize("horizon_s", [None, 3.0])
@pytest.mark.parametrize(("rate_per_s", "verdict"), [(500.0, "stable"), (1200.0, "overloaded")])
def test_a_queue_is_stable_below_its_capacity_and_overloaded_above(tmp_path, rate_per_s, verdict, horizon_s):
    horizon = {} if horizon_s is None else {"horizon_s": horizon_s}
    summary = run(tmp_path, QUEUE, **{"workload.arrival.rate_per_s": rate_per_s}, **horizon).summary

    assert summary["verdict"] == verdict
    assert summary["offered_throughput"] == pytest.approx(rate_per_s, rel=0.05)
    assert summary["request_throughput"] == pytest.approx(min(rate_per_s, 1000.0), rel=0.05)


def test_a_burst_drains(tmp_path):
    arrival = {"process": "burst", "size": 5000, "interval_s": 1.0}
    summary = run(tmp_path, QUEUE, **{"workload.arrival": arrival}).summary

    assert (summary["verdict"], summary["offered_throughput"]) == ("stable", None)
    assert summary["in_system"]["peak"] == 4999


def test_latencies_leave_out_who_gave_up(tmp_path):
    # 10 ms for a prompt: the second of two waits for it, and its client for 5 ms only.
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n0,10,2,\n0.001,10,2,0.012\n"
    (tmp_path / "trace.csv").write_text(trace)
    result = run(tmp_path, CUT, **{"engine.max_num_seqs": 1, "latency": {"backend": "linear", "base_us": 10_000.0}})

    assert result.summary["requests"]["timed_out"] == 1
    assert result.summary["ttft_ms"]["max"] == result.requests["first_token_ns"][0] / 1e6
    assert result.summary["not_completed"]["requests"] == 1
