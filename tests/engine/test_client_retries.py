"""Clients that send failed requests again, on timelines worked out by hand: an iteration takes 10 ms."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.domain.client_retry import ClientRetry
from simulator.engine.operations.retry_budget import RetryBudget
from simulator.errors import InputErrors

MS = 1_000_000
EXPERIMENT = """
engine = {max_num_seqs = 1, max_model_len = 100, num_gpu_blocks = 100, block_size = 16, async_scheduling = false}
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
[workload]
type = "trace"
path = "requests.csv"
client_retry = {backoff_s = 0.02, jitter = 0.0, timeout_s = 0.025}
"""
HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens"
every_way = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


def serve(folder, rows, fast=True, head=HEAD, text=EXPERIMENT, **overrides):
    (folder / "requests.csv").write_text("\n".join([head, *rows]) + "\n")
    (folder / "experiment.toml").write_text(text)
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return simulator.run(folder / "experiment.toml", keys | {"engine.fast_forward": fast})


def column(result, name):
    return [value / MS if value >= 0 else None for value in result.requests[name].tolist()]


@every_way
def test_a_client_gives_up_waits_and_sends_the_request_again(tmp_path, fast):
    # The first needs 50 ms and has 25: it leaves with the iteration that ends at 30, returns 20 later, and is next
    # after the second, at 65; it is given up at 75, in the iteration to 85, and returns 40 later, at 125, to no avail.
    # The second waits until 25 and returns at 45: it is served at once, to 65.
    result = serve(tmp_path, ["0,32,5", "0,33,2"], fast)

    assert result.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]
    assert result.requests["client_attempts"].tolist() == [3, 2]
    assert column(result, "client_sent_ns") == column(result, "scheduled_ns") == [125, 45]
    assert column(result, "first_token_ns") == [135, 55]
    assert column(result, "completed_ns") == [None, 65]
    assert column(result, "arrival_ns") == [0, 0]
    assert result.summary["ttft_ms"]["max"] == 55           # from the first arrival


@every_way
def test_an_attempt_finds_the_prompt_of_the_one_before_in_the_cache(tmp_path, fast):
    # 32 tokens are two blocks of 16, of which the second holds the last token, which is computed in any case.
    result = serve(tmp_path, ["0,32,5"], fast)

    assert result.requests["cached_tokens"].tolist() == [16]
    # 32, then 16 tokens of the prompt each time, and the iteration in which the client gives up computes another token.
    counts = result.summary["client_retries"]
    assert counts["computed_tokens"] == 32 + 16 + 16 + 3 * 2
    assert (counts["useful_tokens"], counts["wasted_share"]) == (0, 1.0)


@every_way
def test_tokens_of_an_attempt_that_was_given_up_are_void(tmp_path, fast):
    # Two tokens at 10 and 20, given up at 25. At 50 it begins anew; a longer wait than 25 is enough for 5 tokens.
    result = serve(tmp_path, ["0,32,5", "200,10,1"], fast, workload__client_retry__attempts=1)

    assert result.requests["output_tokens"].tolist() == [2, 1]
    assert column(result, "first_token_ns") == [60, 200_010]
    legs = result.legs[result.legs["request"] == 0]
    assert [records.LEG_ENDS[how] for how in legs["how"]] == ["ended", "ended"]
    assert (legs["ended_ns"] / MS).tolist() == [30, 80]


@every_way
def test_a_request_that_no_replica_takes_is_sent_again(tmp_path, fast):
    # The replica stops at 5 ms, and no other is there: the request is refused then, and at 25. At 65 it is served.
    failures = [{"kind": "stop", "which": 0, "at_s": 0.005, "duration_s": 0.03}]
    result = serve(tmp_path, ["0,32,1"], fast, failures=failures)

    assert result.requests["client_attempts"].tolist() == [3]
    assert column(result, "admitted_ns") == [65] and column(result, "completed_ns") == [75]
    assert result.requests["cause"].tolist() == [0]


@pytest.mark.parametrize(("on", "attempts"), [(["lost"], 2), (["timeout", "rejected"], 1)])
def test_a_lost_request_is_sent_again_if_its_client_looks_at_that(tmp_path, on, attempts):
    failures = [{"kind": "stop", "which": 0, "at_s": 0.005, "duration_s": 0.01, "on_failure": "lost"}]
    result = serve(tmp_path, ["0,32,1"], failures=failures, workload__client_retry__on=on)

    assert result.requests["client_attempts"].tolist() == [attempts]
    assert column(result, "completed_ns") == [35 if attempts == 2 else None]    # lost at 5, sent again at 25


def test_a_prompt_that_never_fits_is_sent_once(tmp_path):
    result = serve(tmp_path, ["0,100,1"])

    assert result.requests["status"].tolist() == [records.REJECTED]
    assert result.requests["client_attempts"].tolist() == [1]


def test_a_slot_of_a_closed_loop_is_held_until_the_last_attempt_ends(tmp_path):
    # The first request is sent at 0, 50 and 120 ms, each time given up in the third iteration: it ends for good at 150.
    result = serve(tmp_path, ["0,32,5", "0,33,1"], workload__load={"mode": "concurrency", "concurrency": 1})

    assert result.requests["client_attempts"].tolist() == [3, 1]
    assert column(result, "client_sent_ns") == [120, 150]
    assert column(result, "arrival_ns") == [0, 150]


def test_a_routing_decision_under_way_ends_before_the_request_is_sent_again(tmp_path):
    # Given up at 25 ms and sent again at 26, while the decision on the first attempt lasts until 30: it returns then.
    result = serve(tmp_path, ["0,32,1"], cluster__routing__latency_s=0.03, workload__client_retry__backoff_s=0.001,
                   workload__client_retry__attempts=1)

    assert result.requests["client_sent_ns"].tolist() == [30 * MS + 1]
    assert result.requests["status"].tolist() == [records.TIMED_OUT]
    assert len(result.legs) == 0


def test_a_budget_bounds_the_share_of_retries():
    # Of 9 requests and a retry a tenth are retries; after the window of 10 s the retry is forgotten.
    class Arrived:
        requests = np.zeros(9, records.REQUEST)
        script = None
    Arrived.requests["arrival_ns"] = np.arange(9) * 1000 * MS
    budget = RetryBudget(ClientRetry(budget_share=0.1, budget_window_s=10.0), Arrived)

    assert budget.spend(8000 * MS)
    assert not budget.spend(8000 * MS)
    assert not budget.spend(18_001 * MS)        # nothing came within the last 10 s
    assert RetryBudget(ClientRetry(budget_share=0.5), Arrived).spend(0)         # one came by then, and one may be sent
    assert not RetryBudget(ClientRetry(budget_share=0.4), Arrived).spend(0)


def test_a_retry_above_the_budget_is_not_sent(tmp_path):
    result = serve(tmp_path, ["0,32,5", "0,33,5"], workload__client_retry__budget_share=0.34)

    assert result.requests["client_attempts"].tolist() == [1, 2]        # the second gives up first: it waits
    assert result.summary["client_retries"]["over_budget"] == 2         # the first, and the second at its second end


@pytest.mark.parametrize(("keys", "message"), [
    ({"budget_window_s": 5.0}, "budget_window_s takes budget_share"),
    ({"on": ["lost", "lost"]}, "an end is named twice")])
def test_settings_that_contradict_each_other_are_refused(tmp_path, keys, message):
    with pytest.raises(InputErrors, match=message):
        serve(tmp_path, ["0,1,1"], **{f"workload__client_retry__{key}": value for key, value in keys.items()})


@every_way
def test_a_request_sent_again_by_its_client_is_not_sent_by_the_gateway_as_well(tmp_path, fast):
    # Replica 0 stops at 12, and the gateway would send its request elsewhere at 62. The client gives up at 25 and sends
    # it again at 45: replica 1 serves it, once, to 65.
    result = serve(tmp_path, ["0,32,2"], fast, topology__replicas=2, cluster__retry={"backoff_s": 0.05, "jitter": 0.0},
                   failures=[{"kind": "stop", "which": 0, "at_s": 0.012, "duration_s": 1.0}])

    assert column(result, "completed_ns") == [65]
    assert result.requests["replica"].tolist() == [1]
    assert result.replicas["requests"].tolist() == [1, 1]
    assert result.replicas["iterations"].tolist()[1] == 2
