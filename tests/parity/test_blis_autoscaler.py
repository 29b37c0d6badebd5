"""BLIS's autoscaler, case 22: who served each request, and every time to first token, to the microsecond.

One replica of 120 blocks is too few for 400 requests/s. At 200 ms seven more are wanted, at 300 they begin to load, and
from 450 on they serve. BLIS takes turns by the number of the request modulo the replicas there are.
"""
import json
from dataclasses import replace

import numpy as np
import pytest

from simulator.domain.autoscaling import Autoscaling, Delay
from simulator.engine.plan import Front
from simulator.routing.python_router import PythonRouter
from simulator.scaling.blis import Blis as BlisScaling
from simulator.scaling.blis import BlisParameters as BlisScalingParameters
from simulator.scheduling.blis import Blis, BlisParameters
from support import upkeep
from support.goldens import GOLDENS
from support.scenario import load

CASE = GOLDENS / "blis/22_run_autoscaler"
OPTIONS = {"num_blocks": 121, "max_model_len": 8192}
PRICES = {"base_us": 5000.0, "per_sequence_us": 10.0, "per_prefill_token_us": 20.0, "per_context_token_us": 0.05}
HOST = {"queue_base_us": 1000.0, "output_token_us": 50.0, "output_token_accumulates": True, "completion_us": 300.0}
PROMPTS = {"A": [["uniq", 100]], "B": [["group", "g", 64], ["uniq", 50]]}


class Turns(PythonRouter):
    """Replica number n modulo those that are open, for the n-th request."""

    def choose(self, request, now_ns):
        is_open = np.flatnonzero(self.accounts["is_routable"])
        return int(is_open[request.row % len(is_open)])


@pytest.fixture(scope="module")
def recorded():
    if not CASE.exists():
        pytest.skip(f"the recorded case is not in {CASE}")
    requests = json.loads((CASE / "metrics.json").read_text())["requests"]
    return sorted(requests, key=lambda request: int(request["requestID"].removeprefix("request_")))


@pytest.fixture(scope="module")
def outcome(recorded):
    scenario = load({"options": OPTIONS, "prices": PRICES, "host": HOST, "requests": [
        {"id": request["requestID"], "arrival": request["arrived_at"], "output_len": request["num_decode_tokens"],
         "prompt": PROMPTS[request["tenant_id"]]} for request in recorded]})
    scenario = replace(scenario, parameters=BlisParameters(upstream_compat=True))
    scaling = Autoscaling(
        policy="blis", interval_s=0.2, scale_down_stabilization_window_s=0.4, drains="oldest",
        actuation_delay=Delay(mean_s=0.1), provisioning_delay=Delay(), loading_delay=Delay(mean_s=0.15),
        warm_up_delay=Delay(), parameters=BlisScalingParameters(
            kv_cache_threshold=0.8, scale_up_threshold=0.5, scale_down_boundary=0.2, avg_input_tokens=150))
    return upkeep.run(scenario, autoscaling=scaling, autoscaler=BlisScaling, scheduler=Blis, replicas=1, max_replicas=8,
                      front=Front(Turns, None), resolution_us=1.0)


def test_replicas_come_when_they_did(outcome):
    for replica in range(1, 8):
        assert outcome.changes(replica) == [(300, "loading", "scaling"), (450, "up", "scaling")]


def test_each_request_is_served_where_it_was(recorded, outcome):
    names = ["instance_0", *(f"autoscale-unit-{number:06}" for number in range(1, 8))]
    assert [names[replica] for replica in outcome.requests["replica"]] == [each["handled_by"] for each in recorded]


def test_each_first_token_comes_when_it_did(recorded, outcome):
    ttft_us = (outcome.requests["first_token_ns"] - outcome.requests["arrival_ns"]) / 1e3
    assert ttft_us.tolist() == pytest.approx([each["ttft_ms"] * 1e3 for each in recorded], abs=1e-3)
    assert outcome.requests["preemptions"].sum() == 52
