"""Autoscaling, on timelines worked out by hand: every iteration takes 5 ms, whatever is in it."""
import pytest

import simulator
from simulator.domain import records
from simulator.domain.autoscaling import Autoscaling, Delay
from simulator.domain.failures import Failure, Health
from simulator.errors import InputErrors
from simulator.scaling.base import Autoscaler
from simulator.scaling.schedule import Change, Schedule, ScheduleParameters
from support import upkeep
from support.scenario import load
from support.upkeep import MS

PRICES = {"base_us": 5000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}
NOTHING = Delay()


def scripted(*script, seen=None, wants=False):
    """Return an autoscaler that says, at each decision, the next change of pool 0."""
    class Scripted(Autoscaler):
        wants_finished = wants

        def __init__(self, parameters):
            self.script = list(script)

        def decide(self, observation):
            if seen is not None:
                seen.append(observation)
            change = self.script.pop(0) if self.script else 0
            return change if isinstance(change, dict) else {0: change}
    return Scripted


def settings(**more):
    fields = {"policy": "scripted", "interval_s": 0.01, "parameters": None} | dict.fromkeys(
        ("actuation_delay", "provisioning_delay", "loading_delay", "warm_up_delay"), NOTHING)
    return Autoscaling(**(fields | more))


def serve(requests, autoscaler, scaling=None, *, fast=True, **setup):
    """Serve (arrival in ms, output tokens) under round robin; pool 0 has places for three replicas."""
    described = [{"id": str(i), "arrival": arrival / 1e3, "prompt": [["uniq", 10]], "output_len": outputs}
                 for i, (arrival, outputs) in enumerate(requests)]
    scenario = load({"options": {}, "prices": PRICES, "requests": described})
    return upkeep.run(scenario, autoscaling=scaling or settings(), autoscaler=autoscaler, fast_forward=fast,
                      **({"replicas": 1, "max_replicas": 3} | setup))


EXPERIMENT = """
model = {name = "llama-3.2-1b"}
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 100, max_model_len = 512}
latency = {backend = "linear", base_us = 20000}
autoscaling = {policy = "schedule", max_replicas = 5, actuation_delay = {mean_s = 1.0}}
workload = {type = "synthetic", num_requests = 60, arrival = {process = "constant", rate_per_s = 10.0}, \
    prompt_tokens = {distribution = "constant", tokens = 10}, output_tokens = {distribution = "constant", tokens = 2}}
"""
STEADY = [(4 * i, 2) for i in range(30)]        # at 0, 4, ..., 116 ms


def test_orders_are_carried_out_at_their_instants():
    # Orders take effect after 2 ms, a start takes 7 ms; decisions each 10 ms order nothing. Removals take no delay.
    orders = (Change(at_s=0.011, replicas=3), Change(at_s=0.051, replicas=1), Change(at_s=0.075, replicas=2),
              Change(at_s=0.091, remove=0))
    scaling = settings(policy="schedule", parameters=ScheduleParameters(changes=orders),
                       actuation_delay=Delay(mean_s=0.002), loading_delay=Delay(mean_s=0.007))
    outcome = serve(STEADY, Schedule, scaling)
    assert outcome.changes(2)[:3] == [(13, "loading", "scaling"), (20, "up", "scaling"), (53, "draining", "scaling")]
    assert [change for change in outcome.changes(1) if change[1] != "off"] == [
        (13, "loading", "scaling"), (20, "up", "scaling"), (53, "draining", "scaling"),
        (77, "loading", "scaling"), (84, "up", "scaling")]
    assert outcome.changes(0)[0] == (91, "draining", "scaling")


@pytest.mark.parametrize(("order", "is_cut"), [
    ({"replicas": 3}, False), ({"replicas": 6}, True), ({"replicas": 0}, True), ({"remove": 4}, True),
    ({"remove": 0}, False)])
def test_an_order_of_a_number_is_no_second_change_and_a_cut_is_named(tmp_path, order, is_cut):
    # Both orders of 3 take effect after 1 s: the second finds 3. There are places for 5, and one stays in any case.
    given = [{"at_s": 1.0, "replicas": 3}, {"at_s": 1.5, "replicas": 3}, {"at_s": 3.0, **order}]
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    result = simulator.run(tmp_path / "experiment.toml", {"autoscaling.changes": given})
    named = [note for note in result.summary["diagnosis"] if note.startswith("autoscaling.changes: 1 orders")]

    is_of_both = (result.lifecycle["time_ns"] > 0) & (result.lifecycle["time_ns"] < 3e9)
    assert result.lifecycle["replica"][is_of_both].tolist() == [1, 2]
    assert len(named) == is_cut


@pytest.mark.parametrize("decisions", [0, 2])
def test_the_last_report_of_a_replica_is_that_of_its_halt_whoever_looked_before(tmp_path, decisions):
    # It halts at 0.5 s, when requests wait for its 20 ms iterations and few blocks; the autoscaler looks at 0.6 s.
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    result = simulator.run(tmp_path / "experiment.toml", {
        "autoscaling": {"policy": "queue", "interval_s": 0.6, "actuation_delay": {"mean_s": 0.1}},
        "failures": [{"kind": "stop", "at_s": 0.5}], "cluster.health.detection_delay_s": 0.7,
        "workload.arrival.rate_per_s": 400.0, "engine": {"num_gpu_blocks": 6, "max_model_len": 64},
        "output.decisions": decisions})

    assert [int(row["time_ns"]) for row in result.lifecycle if row["replica"] == 1 and row["time_ns"] > 0][:1] == [
        700_000_000]


def test_a_replica_that_is_not_there_is_not_removed():
    scaling = settings(policy="schedule", parameters=ScheduleParameters(changes=(Change(at_s=0.01, remove=3),)))
    with pytest.raises(InputErrors, match=r"autoscaling.changes.remove: expected a replica up to 2, found 3"):
        serve(STEADY, Schedule, scaling)


def test_a_replica_starts_step_by_step():
    # Decided at 10, acted upon at 12; machine at 15, model at 22, warm at 33. From then on the round includes it.
    scaling = settings(actuation_delay=Delay(mean_s=0.002), provisioning_delay=Delay(mean_s=0.003),
                       loading_delay=Delay(mean_s=0.007), warm_up_delay=Delay(mean_s=0.011))
    outcome = serve(STEADY, scripted(1), scaling)
    assert outcome.changes(1) == [(12, "provisioning", "scaling"), (15, "loading", "scaling"),
                                  (22, "warming", "scaling"), (33, "up", "scaling")]
    on_it = outcome.requests["arrival_ns"][outcome.requests["replica"] == 1]
    assert on_it.min() >= 33 * MS
    assert outcome.changes(2) == []


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_a_replica_drains_before_it_is_off(fast):
    # Both have a request of 10 tokens, until 50; the newest is closed at 10. What comes at 20 goes to the other.
    outcome = serve([(0, 10), (0, 10), (20, 1), (30, 1), (100, 1)], scripted(-1), replicas=2, fast=fast)
    assert outcome.changes(1) == [(10, "draining", "scaling"), (50, "off", "scaling")]
    assert outcome.requests["replica"].tolist() == [0, 1, 0, 0, 0]
    assert (outcome.requests["status"] == records.COMPLETED).all()


def test_an_idle_replica_is_off_at_once():
    outcome = serve([(0, 10), (60, 1)], scripted(-1), replicas=2)
    assert outcome.changes(1) == [(10, "draining", "scaling"), (10, "off", "scaling")]


def test_pools_bound_what_is_asked_for():
    seen = []
    outcome = serve(STEADY, scripted(9, -9, seen=seen), settings(min_replicas=2))
    assert [(view.serving, view.variants[0].room, view.variants[0].removable) for view in seen[:3]] == [
        (1, 2, 0), (3, 0, 1), (2, 1, 0)]
    assert outcome.changes(2)[:2] == [(10, "up", "scaling"), (20, "draining", "scaling")]
    assert outcome.changes(1) == [(10, "up", "scaling")]


def test_a_place_is_used_again():
    outcome = serve(STEADY, scripted(1, -1, 0, 1))
    assert [state for _, state, _ in outcome.changes(1)] == ["up", "draining", "off", "up"]


@pytest.mark.parametrize(("drains", "first"), [("newest", 2), ("oldest", 0), ("least_loaded", 1)])
def test_who_goes_first_is_a_matter_of_choice(drains, first):
    # Rows 0, 1, 2 on replicas 0, 1, 2; after 5 ms replica 1 is empty.
    outcome = serve([(0, 10), (0, 1), (0, 10), (100, 1)], scripted(-1), settings(drains=drains), replicas=3)
    assert [bool(outcome.changes(replica)) for replica in range(3)] == [replica == first for replica in range(3)]


def test_a_signal_must_last_as_long_as_the_window():
    # Wanted at 10, not at 20, then from 30 on; 20 ms of it are over at 50.
    scaling = settings(scale_up_stabilization_window_s=0.02)
    outcome = serve(STEADY, scripted(1, 0, 1, 1, 1), scaling)
    assert outcome.changes(1) == [(50, "up", "scaling")]


def test_windows_are_apart():
    # Less is wanted at 10 and 20, which is enough; more at 20 too, of another pool, which waits for 40.
    scaling = settings(scale_up_stabilization_window_s=0.02, scale_down_stabilization_window_s=0.01)
    outcome = serve(STEADY, scripted(-1, {0: -1, 1: 1}, {1: 1}, {1: 1}), scaling,
                    pools=[{"replicas": 2}, {"replicas": 1, "max_replicas": 2}])
    assert outcome.changes(1)[0] == (20, "draining", "scaling")
    assert outcome.changes(4) == [(40, "up", "scaling")]


def test_a_policy_sees_who_left():
    seen = []
    serve([(0, 1), (1, 3), (12, 1), (60, 1)], scripted(seen=seen, wants=True))
    # The first at 5; the second, 10, 15 and 20, and the third, 20, after the decision of that instant.
    assert [len(view.finished) for view in seen[:3]] == [1, 0, 2]
    assert seen[0].finished["completed_ns"].tolist() == [5 * MS]


def test_delays_may_be_drawn():
    # The same draws for the same seed; normal ones spread around their mean.
    def starts(seed, law):
        spread = {"stddev_s": 0.004} if law == "normal" else {}
        scaling = settings(loading_delay=Delay(mean_s=0.02, law=law, **spread))
        outcome = serve([(0, 40)], scripted(2), scaling, seed=seed)
        return [outcome.changes(replica)[-1][0] - 10 for replica in (1, 2)]
    assert starts(1, "constant") == [20, 20]
    assert starts(1, "normal") == starts(1, "normal") != starts(2, "normal")
    assert all(4 < delay < 36 for delay in starts(1, "normal"))
    assert len(set(starts(1, "exponential"))) == 2


@pytest.mark.parametrize("keys", [
    {"mean_s": 1.0, "stddev_s": 0.5}, {"mean_s": 1.0, "stddev_s": 0.5, "law": "exponential"}, {"law": "exponential"}])
def test_delays_with_a_key_that_has_no_effect_are_refused(keys):
    with pytest.raises(ValueError, match="effect"):
        Delay(**keys)


def test_a_draining_replica_that_fails_is_off_when_its_requests_are_gone():
    # Closed at 10, stopped at 12, noticed at 32: its request goes elsewhere and nothing is left to drain.
    failure = Failure(kind="stop", which=1, at_s=0.012, duration_s=0.05)
    outcome = serve([(0, 10), (0, 10)], scripted(-1), replicas=2, failures=[failure],
                    health=Health(detection_delay_s=0.02))
    assert outcome.changes(1)[:4] == [(10, "draining", "scaling"), (12, "down", "failure"), (32, "down", "detection"),
                                      (32, "off", "scaling")]
    assert outcome.requests["replica"].tolist() == [0, 0]
    assert outcome.requests["output_tokens"].tolist() == [10, 10]


def test_a_run_without_work_left_ends():
    outcome = serve([(0, 1)], scripted())
    assert outcome.requests["completed_ns"].tolist() == [5 * MS]


@pytest.mark.parametrize("answer", [{7: 1}, {0: 1.5}, None])
def test_an_answer_that_makes_no_sense_is_refused(answer):
    class Confused(Autoscaler):
        def decide(self, observation):
            return answer
    with pytest.raises(ValueError, match=r"Confused\.decide: expected"):
        serve(STEADY, Confused)
