"""Clients that send failed requests again, where everything happens at once: each request ends once, the same way."""
import tomllib
from itertools import pairwise
from random import Random

import numpy as np
import pytest

import simulator
from invariants import test_pipeline_conservation, test_whole_cluster
from simulator import registry
from simulator.domain import records

TRACE = 'path = "requests.csv"'


def with_retries(rng, text):
    """Return an experiment whose clients send requests again, as TOML."""
    budget = ", budget_share = 0.3, budget_window_s = 0.05" if rng.random() < 0.3 else ""
    return text.replace(TRACE, TRACE + (
        f", client_retry = {{attempts = {rng.randint(1, 4)}, backoff_s = {rng.choice([0.0, 0.0005, 0.02])}, "
        f"timeout_s = {rng.choice([0.012, 0.04, 0.1])}, jitter = {rng.choice([0.0, 0.5])}{budget}}}"))


@pytest.fixture(scope="module", params=range(40))
def experiment(request, tmp_path_factory):
    rng, folder = Random(500 + request.param), tmp_path_factory.mktemp("retries")
    source = test_pipeline_conservation if request.param % 2 else test_whole_cluster
    (folder / "requests.csv").write_text(source.requests_of(rng))
    (folder / "experiment.toml").write_text(with_retries(rng, source.experiment_of(rng)))
    return folder / "experiment.toml"


@pytest.fixture(scope="module")
def result(experiment):
    return simulator.run(experiment)


def test_each_request_ends_once(result):
    table, counts = result.requests, dict(result.summary["requests"])
    arrived = table["arrival_ns"] <= result.summary["clock_s"] * 1e9
    assert counts.pop("length_capped") <= counts["completed"]
    assert counts.pop("injected") == sum(counts.values()) == arrived.sum()
    served = np.bincount(table["replica"][table["status"] == records.COMPLETED],
                         minlength=len(result.summary["replicas"]))
    assert [replica["completed"] for replica in result.summary["replicas"]] == served.tolist()
    done = result.legs["how"] == records.LEG_ENDS.index("completed")
    ends = np.bincount(result.legs["request"][done], minlength=len(table))
    assert (ends == (table["status"] == records.COMPLETED)).all()


def test_no_attempt_begins_before_the_one_before_has_ended(result):
    for row in range(len(result.requests)):
        legs = result.legs[result.legs["request"] == row]
        for before, after in pairwise(legs):            # a move begins while the request is still at its source
            assert before["ended_ns"] >= 0
            assert after["sent_ns"] >= before["ended_ns"] or records.LEG_ENDS[before["how"]] == "moved"
    table = result.requests
    assert (table["client_sent_ns"] >= table["arrival_ns"]).all()
    sent = table["admitted_ns"] >= 0
    assert (table["admitted_ns"][sent] >= table["client_sent_ns"][sent]).all()
    first = table["first_token_ns"] >= 0
    assert (table["first_token_ns"][first] > table["client_sent_ns"][first]).all()


def test_no_request_is_sent_more_often_than_allowed(experiment, result):
    attempts, summary = result.requests["client_attempts"], result.summary["client_retries"]
    most = tomllib.loads(experiment.read_text())["workload"]["client_retry"]["attempts"]
    assert 1 <= attempts.min() <= attempts.max() <= 1 + most
    assert summary["retries"] == (attempts - 1).sum()
    assert 0 <= summary["useful_tokens"] <= summary["computed_tokens"]


def test_neither_a_second_run_nor_single_steps_change_anything(experiment, result):
    for overrides in ({}, {"engine.fast_forward": False}):
        again = simulator.run(experiment, overrides)
        np.testing.assert_array_equal(again.requests, result.requests)
        np.testing.assert_array_equal(again.legs, result.legs)


SCHEDULERS = sorted(registry.KINDS["scheduler"].entries.keys() - {"split_wise"})       # which takes pools with roles


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_each_scheduler_takes_a_request_again(tmp_path, scheduler):
    rng = Random(7)
    rows = [f"{rng.random() / 5:.4f},{rng.randint(1, 60)},{rng.randint(1, 40)}" for _ in range(60)]
    (tmp_path / "requests.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")
    (tmp_path / "experiment.toml").write_text(
        f'engine = {{scheduler = "{scheduler}", max_model_len = 128, num_gpu_blocks = 20}}\n'
        'latency = {backend = "linear", base_us = 5000.0}\n'
        'workload = {type = "trace", path = "requests.csv", client_retry = {timeout_s = 0.1, backoff_s = 0.001, '
        "attempts = 30}}\n")
    predicted = {"workload.output_knowledge.predictor": "exact"} if scheduler in ("lightllm", "sjf_aging") else {}
    result = simulator.run(tmp_path / "experiment.toml", predicted)

    assert result.requests["client_attempts"].max() > 2
    assert result.summary["client_retries"]["completed"] > 0
    again = simulator.run(tmp_path / "experiment.toml", predicted | {"engine.fast_forward": False})
    np.testing.assert_array_equal(again.requests, result.requests)
