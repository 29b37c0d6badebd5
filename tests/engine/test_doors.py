"""Policies of users that are compiled: an answer that their base does not allow ends the run with their name."""
import shutil
from pathlib import Path

import pytest

import simulator
from simulator import registry
from simulator.errors import BadAnswer
from support.compiled import built

pytestmark = pytest.mark.slow

EXPERIMENT = """
latency = {backend = "linear"}
engine = {max_model_len = 100, num_gpu_blocks = 100}
topology = {replicas = 3}
cluster = {routing = {policy = "least_loaded"}}
workload = {type = "trace", path = "t.csv"}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors")
    built([Path(__file__).parent / "compiled/wild_answers.pyx"], folder)
    (folder / "a.toml").write_text(EXPERIMENT)
    (folder / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "0,10,50\n5,10,50\n")
    yield folder
    registry._user_classes.pop("wild_answers", None)
    shutil.rmtree(folder)


def refusal(folder, overrides):
    with pytest.raises(BadAnswer) as caught:
        simulator.run(folder / "a.toml", overrides)
    return registry.blame(caught.value)


@pytest.mark.parametrize("answer", [-3, 3, 2**31 - 1])
def test_a_router_that_answers_no_replica_is_named(folder, answer):
    assert refusal(folder, {"cluster.routing.policy": "wild_answers:Routes", "cluster.routing.answer": answer}) == (
        '"wild_answers:Routes", raised BadAnswer: Routes.route: expected -1 or the index of one of 3 replicas that can '
        f"be routed to, found {answer}")


def test_a_router_that_answers_a_closed_replica_is_named(folder):
    told = refusal(folder, {
        "cluster.routing.policy": "wild_answers:Routes", "cluster.routing.answer": 1,
        "failures": [{"kind": "stop", "target": "replica", "which": 1, "at_s": 0.0, "duration_s": 10.0}]})

    assert told.startswith('"wild_answers:Routes", raised BadAnswer') and told.endswith("found 1")


@pytest.mark.parametrize("answer", [-2, 4])
def test_a_filter_that_keeps_more_than_there_are_is_named(folder, answer):
    routing = {"policy": "weighted", "filters": [{"name": "wild_answers:Keeps", "answer": answer}]}

    assert refusal(folder, {"cluster.routing": routing}) == (
        '"wild_answers:Keeps", raised BadAnswer: Keeps.keep: expected 0 to 3, the number of candidates, '
        f"found {answer}")


def test_admission_that_answers_neither_yes_nor_no_is_named(folder):
    assert refusal(folder, {"cluster.admission.policy": "wild_answers:Admits", "cluster.admission.answer": 2}) == (
        '"wild_answers:Admits", raised BadAnswer: Admits.admit: expected 0 or 1, found 2')


def test_a_detector_that_answers_no_number_is_named(folder):
    assert refusal(folder, {"cluster.gateway_queue.saturation.detector": "wild_answers:Detects"}) == (
        '"wild_answers:Detects", raised BadAnswer: Detects.saturation: expected a finite number >= 0, found nan')


@pytest.mark.parametrize("answer", [-1, 0, 3])
def test_a_rescheduler_that_moves_to_no_other_replica_is_named(folder, answer):
    section = {"policy": "wild_answers:Moves", "answer": answer, "kv_bytes_per_token": 1e5, "bandwidth_gb_per_s": 10.0}

    assert refusal(folder, {"cluster.rescheduling": section}) == (
        '"wild_answers:Moves", raised BadAnswer: Moves.plan: expected moves from one of 3 replicas to another, '
        f"found 0 to {answer}")
