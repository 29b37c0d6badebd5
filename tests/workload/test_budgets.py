"""Requests that declare no limit of their output may fill the window of the engine, and end there."""
import pytest

import simulator
from simulator.domain import records

EXPERIMENT = """
engine = {scheduler = "blis", num_gpu_blocks = 100, max_model_len = 100}
workload = {type = "trace", path = "trace.csv"}
[latency]
backend = "linear"
base_us = 10_000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
"""
# BLIS, EnqueueRequest: MaxOutputLen = 0 becomes 100 - 60 = 40, and 60 + 40 is no more than 100. A declared one of 500
# is: dropped. So is a prompt of 100, with any budget; one of 99 gets the token that its prefill brings.
TRACE = """request_id,arrived_at,num_prefill_tokens,num_decode_tokens,max_tokens
open,0,60,500,0
declared,0,60,500,500
as long,0,60,500,
full,0,100,5,0
last,0,99,5,0
short,0,60,7,0
limited,0,60,500,9
"""
ENDS = {"open": 40, "last": 1, "short": 7, "limited": 9}


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the trace, with overrides."""
    def run(**overrides):
        (tmp_path / "e.toml").write_text(EXPERIMENT)
        (tmp_path / "trace.csv").write_text(TRACE)
        return simulator.run(tmp_path / "e.toml", {key.replace("__", "."): value for key, value in overrides.items()})

    return run


def outputs(result):
    rows = result.requests
    done = rows["status"] == records.COMPLETED
    return dict(zip(rows["request_id"][done].tolist(), rows["output_tokens"][done].tolist(), strict=True))


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("upstream", [True, False])
def test_under_blis_the_prompt_alone_is_compared_with_the_window(run, fast_forward, upstream):
    result = run(engine__fast_forward=fast_forward, engine__upstream_compat=upstream)

    assert outputs(result) == ENDS
    assert result.summary["requests"]["dropped"] == 3
    assert result.summary["requests"]["length_capped"] == 2         # open and last; the budget of `limited` is its own


def test_the_reason_is_the_window_where_no_limit_was_declared(run):
    rows = run().requests
    reason = dict(zip(rows["request_id"].tolist(), rows["finish_reason"].tolist(), strict=True))

    assert [reason[name] for name in ENDS] == [
        records.MAX_MODEL_LEN, records.MAX_MODEL_LEN, records.STOP, records.LENGTH]


@pytest.mark.parametrize("scheduler", ["vllm", "sglang", "orca"])
def test_other_engines_fill_the_window_likewise(run, scheduler):
    served = outputs(run(engine__scheduler=scheduler))

    assert (served["short"], served["limited"]) == (7, 9)
    assert served["open"] == outputs(run(engine__scheduler=scheduler))["as long"]


def test_the_window_of_the_smallest_pool_counts(run):
    pools = [{"name": name, "engine": {"max_model_len": length}} for name, length in (("a", 100), ("b", 90))]

    assert outputs(run(pools=pools))["open"] == 30                  # in whichever: 90 - 60


def test_they_come_back_from_a_written_trace(run, tmp_path):
    run()
    assert simulator.cli.main(["workload", str(tmp_path / "e.toml"), "--out", str(tmp_path / "again.csv")]) == 0

    assert [line.split(",")[-1] for line in (tmp_path / "again.csv").read_text().splitlines()[1:]].count("0") == 4
