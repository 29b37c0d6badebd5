"""Requests differ in what is accepted of their drafts: by what they are, and by chance."""
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from simulator.assembly import assemble
from simulator.config.load import load_experiment
from simulator.engine.accepting import missing_texts, new_acceptance
from simulator.errors import InputErrors
from simulator.latency.linear import Linear
from simulator.scheduling.acceptance_table import AcceptanceTable, variance_of
from simulator.scheduling.contract import SchedulerFacts
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

CODE = {"label": "tenant", "name": "code", "acceptance": {"distribution": [0, 0, 1]}}
TEXT = """
engine = {num_gpu_blocks = 100, max_model_len = 1000}
latency.backend = "linear"
workload = {type = "trace", path = "trace.csv"}
"""


def speculative(**keys):
    return msgspec.convert({"num_tokens": 3} | keys, SpeculativeParameters)


def acceptance_of(parameters, *rest):
    return new_acceptance(SchedulerFacts(speculative=parameters), *rest)


def workload_of(count, tenants=("chat", "code")):
    workload = plain_workload([0] * count, 100, 50)
    workload.demands["tenant"] = np.arange(count) % (len(tenants) + 1) - 1
    workload.labels = {"tenant": list(tenants)}
    return workload


def means(acceptance, rows, steps):
    """Return the mean of the accepted drafts of each request."""
    return np.array([[acceptance.accepted_drafts(row, step) for step in range(steps)] for row in range(rows)]).mean(1)


def test_texts_have_their_own_acceptance():
    found = means(acceptance_of(speculative(acceptance=[1], by_text=[CODE]), workload_of(9), 0), 9, 20)
    assert found.tolist() == [1, 1, 2] * 3          # of none, of chat, of code


def test_the_first_that_fits_goes():
    chat = {"label": "tenant", "name": "chat", "acceptance": {"distribution": [0, 0, 0, 1]}}
    workload = workload_of(3)
    workload.demands["slo_class"], workload.labels["slo_class"] = 0, ["all"]
    of_class = {"label": "slo_class", "name": "all", "acceptance": {"distribution": [1]}}
    found = means(acceptance_of(speculative(by_text=[CODE, of_class, chat]), workload, 0), 3, 5)
    assert found.tolist() == [0, 0, 2]


def test_who_has_no_text_draws_as_without_texts():
    table = {"rates": [0.7, 0.4]}
    plain, other = (acceptance_of(speculative(acceptance=table, **more), workload_of(30), 5) for more in (
        {}, {"by_text": [CODE]}))
    for row in range(30):
        drawn = [[each.accepted_drafts(row, step) for step in range(50)] for each in (plain, other)]
        assert drawn[0] == drawn[1] if row % 3 < 2 else drawn[1] == [2] * 50


@pytest.mark.parametrize("table", [
    AcceptanceTable(rates=(0.8,), length_std=0.5), AcceptanceTable(distribution=(1, 0, 3), length_std=0.8),
    AcceptanceTable(per_position=(0.73, 0.52, 0.35), length_std=1.2),
    AcceptanceTable(mean_length=1.5, length_std=0.05)])
def test_requests_spread_around_the_mean(table):
    requests, steps = 3000, 200
    weights = np.array(table.weights(3)) / sum(table.weights(3))
    mean = weights @ np.arange(len(weights))
    found = means(acceptance_of(SpeculativeParameters(num_tokens=3, acceptance=table),
                                 plain_workload([0] * requests, 9, 9), 3), requests, steps)
    # The mean of a request is known up to what its steps scatter: variances of requests and of their steps add up.
    variance = variance_of(tuple(weights))
    scattered = table.length_std**2 + (variance - table.length_std**2) / steps
    assert abs(found.mean() - mean) < 5 * np.sqrt(scattered / requests)
    # The variance of a bounded number, from n of them, has a relative error of sqrt((kurtosis - 1) / n); kurtosis < 10.
    assert abs(found.var() / scattered - 1) < 5 * np.sqrt(9 / requests)


def test_a_request_keeps_its_rates_whatever_others_there_are():
    parameters = speculative(acceptance={"rates": [0.6], "length_std": 0.6})
    few, many = plain_workload([0] * 5, 9, 9), plain_workload([0] * 50, 9, 9)
    few.request_ids = many.request_ids[20:25].copy()
    one, other = (acceptance_of(parameters, workload, 8) for workload in (few, many))
    assert means(one, 5, 100).tolist() == means(other, 25, 100)[20:].tolist()
    assert means(one, 5, 100).tolist() != means(acceptance_of(parameters, few, 9), 5, 100).tolist()


@pytest.mark.parametrize("keys", [
    {"acceptance": {"rates": [0.7, 0.5], "length_std": 0.6}}, {"acceptance": [1], "by_text": [CODE]},
    {"acceptance": {"rates": [0.5]}, "by_text": [CODE | {"acceptance": {"rates": [0.9], "length_std": 0.9}}]}])
def test_runs_ahead_and_groups_change_nothing(keys):
    latency = Linear(Linear.Parameters(base_us=1000.0))
    one, other = (record(
        workload_of(40), VllmParameters(speculative=speculative(**keys), max_num_seqs=8), latency, details=False,
        num_gpu_blocks=200, block_size=16, max_model_len=1000, fast_forward=fast) for fast in (True, False))
    np.testing.assert_array_equal(one.requests, other.requests)
    assert one.token_times == other.token_times
    assert len({tuple(b - a for a, b in pairwise(times)) for times in one.token_times.values()}) > 1


@pytest.mark.parametrize(("keys", "message"), [
    ({"by_text": [CODE, CODE]}, "by_text: tenant code: expected once, found 2 times"),
    ({"by_text": [CODE], "acceptance": [0, 1]}, "by_text: expected none where acceptance is a cycle"),
    ({"by_text": [CODE | {"acceptance": {"mean_length": 9.0}}]}, "by_text: code: mean_length: expected at most"),
    ({"acceptance": {"rates": [0.5], "length_std": 1.1}}, "length_std: expected less than 1.05327")])
def test_what_cannot_be_is_refused(keys, message):
    with pytest.raises(msgspec.ValidationError, match=message):
        speculative(**keys)


def test_texts_that_no_request_has_are_refused(tmp_path):
    assert not list(missing_texts(speculative(by_text=[CODE]), workload_of(9)))
    (tmp_path / "a.toml").write_text(TEXT)
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,tenant\n0,10,10,chat\n")
    experiment = load_experiment(tmp_path / "a.toml", {"engine": {"speculative": {"num_tokens": 3, "by_text": [CODE]}}})
    with pytest.raises(InputErrors, match=r'engine\.speculative\.by_text: no request has tenant "code"; found chat$'):
        assemble.prepare(experiment)
