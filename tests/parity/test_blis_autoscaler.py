"""BLIS's autoscaler: who served each request, and every time to first token, to the microsecond.

Every case whose policy file has an autoscaler is repeated. Its workload is drawn by BLIS, so arrivals and lengths are
taken from the requests that it reported, and shared prefixes from the client of its specification that has those
lengths. BLIS takes turns by the number of the request modulo the replicas there are.
"""
from dataclasses import replace

import numpy as np
import pytest

from simulator.domain.autoscaling import Autoscaling, Delay
from simulator.engine.plan import GatewayPlan
from simulator.routing.python_router import PythonRouter
from simulator.scaling.blis import Blis as BlisScaling
from simulator.scaling.blis import BlisParameters as BlisScalingParameters
from simulator.scheduling.blis import Blis, BlisParameters
from support import blis, upkeep
from support.blis_models import UNLIMITED
from support.scenario import load

ALL = [case for case in blis.cases() if "autoscaler" in case.policies]
pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded runs of an autoscaler under {blis.FOLDER}")


class Turns(PythonRouter):
    """Replica number n modulo those that are open, for the n-th request."""

    def choose(self, request, now_ns):
        is_open = np.flatnonzero(self.accounts["is_routable"])
        return int(is_open[request.row % len(is_open)])


def obstacle(case):
    """Return why a case is not repeated; None if it is."""
    policies, beta = case.policies, case.beta
    delays = [policies["autoscaler"].get("hpa_scrape_delay", {}), *(
        value for value in policies.get("instance_lifecycle", {}).values() if isinstance(value, dict))]
    lengths = [tuple(client[key].get("type") for key in ("input_distribution", "output_distribution"))
               for client in case.spec["clients"]]
    if len(policies["node_pools"]) != 1:
        return "several node pools"
    if any(float(each.get("stddev", 0)) for each in delays):
        return "delays that BLIS draws"
    if set(lengths) != {("constant", "constant")} or len(clients(case)) < len(lengths):
        return "lengths do not tell which client a request is of"
    if case.settings["routing-policy"] != "round-robin" or case.latency_model != "trained-physics":
        return "not round-robin under trained-physics"
    if any(beta[:5] + beta[7:8] + beta[10:]):
        return "a price of an iteration that is not linear in sequences, tokens and context"
    return None


def clients(case):
    """Return {(prompt tokens, output tokens): pieces of the prompt} of the clients of the specification."""
    found = {}
    for client in case.spec["clients"]:
        own, output = (int(client[f"{each}_distribution"]["params"]["value"]) for each in ("input", "output"))
        shared = int(client.get("prefix_length", 50)) if client.get("prefix_group") else 0
        prefix = [["group", client["prefix_group"], shared]] if shared else []
        found[shared + own, output] = [*prefix, ["uniq", own]]
    return found


def recorded(case):
    """Return what BLIS reported of the requests, in the order of their numbers."""
    return sorted(case.results.values(), key=lambda each: int(each["id"].removeprefix("request_")))


def scaling_of(case):
    """Return our autoscaling of a case, and how many replicas there may be."""
    given, (pool,) = case.policies["autoscaler"], case.policies["node_pools"]
    seconds = {key: int(value) / 1e6 for key, value in given.items() if key.endswith("_us")}
    loading = case.policies.get("instance_lifecycle", {}).get("loading_delay", {})
    scaling = Autoscaling(
        policy="blis", interval_s=seconds["interval_us"], drains="oldest",
        scale_up_stabilization_window_s=seconds.get("scale_up_stabilization_window_us", 0.0),
        scale_down_stabilization_window_s=seconds.get("scale_down_stabilization_window_us", 0.0),
        actuation_delay=Delay(mean_s=float(given.get("hpa_scrape_delay", {}).get("mean", 0))),
        provisioning_delay=Delay(), loading_delay=Delay(mean_s=float(loading.get("mean", 0))), warm_up_delay=Delay(),
        parameters=BlisScalingParameters(
            avg_input_tokens=int(given["analyzer"]["avg_input_tokens"]),
            **{key: float(given["analyzer"][key]) for key in (
                "kv_cache_threshold", "scale_up_threshold", "scale_down_boundary")}))
    return scaling, int(pool["initial_nodes"]) * (int(pool["gpus_per_node"]) // case.number("tp"))


def run(case):
    queue_us, completion_us, output_us = case.alpha
    beta, pieces = case.beta, clients(case)
    scenario = load({
        "options": {"num_blocks": case.num_blocks + 1, "max_model_len": case.max_model_len or UNLIMITED},
        "prices": {"per_sequence_us": beta[5], "base_us": beta[6], "per_prefill_token_us": beta[8],
                   "per_context_token_us": beta[9]},
        "host": {"queue_base_us": queue_us, "output_token_us": output_us, "output_token_accumulates": True,
                 "completion_us": completion_us},
        "requests": [{"id": each["id"], "arrival": each["arrived_at_us"] / 1e6, "output_len": each["output"],
                      "prompt": pieces[each["input"], each["output"]]} for each in recorded(case)]})
    scenario = replace(scenario, parameters=BlisParameters(
        upstream_compat=True, max_num_seqs=case.number("max-num-seqs"),
        max_num_batched_tokens=case.number("max-num-batched-tokens")))
    scaling, most = scaling_of(case)
    return upkeep.run(scenario, autoscaling=scaling, autoscaler=BlisScaling, scheduler=Blis, max_replicas=most,
                      replicas=case.number("num-instances"), front=GatewayPlan(Turns, None), resolution_us=1.0)


@pytest.fixture(scope="module", params=ALL, ids=str)
def repeated(request):
    """Return a case and our run of it."""
    if obstacle(request.param):
        pytest.skip(obstacle(request.param))
    return request.param, run(request.param)


def test_replicas_serve_when_they_have_loaded(repeated):
    case, outcome = repeated
    scaling, _ = scaling_of(case)
    came = [outcome.changes(replica)[:2] for replica in range(case.number("num-instances"), len(outcome.replicas))]

    for (begin_ms, *loading), (end_ms, *up) in filter(None, came):
        assert (loading, up) == (["loading", "scaling"], ["up", "scaling"])
        assert end_ms - begin_ms == scaling.loading_delay.mean_s * 1e3
        assert (begin_ms - scaling.actuation_delay.mean_s * 1e3) % (scaling.interval_s * 1e3) == 0


def test_each_request_is_served_where_it_was(repeated):
    case, outcome = repeated
    placed = case.log(r"placed instance (\S+) for model")
    names = [*(f"instance_{i}" for i in range(case.number("num-instances"))), *placed]
    assert [names[replica] for replica in outcome.requests["replica"]] == [each["instance"] for each in recorded(case)]


def test_each_first_token_comes_when_it_did(repeated):
    case, outcome = repeated
    ttft_us = (outcome.requests["first_token_ns"] - outcome.requests["arrival_ns"]) / 1e3
    assert ttft_us.tolist() == [each["ttft_us"] for each in recorded(case)]
    assert outcome.requests["preemptions"].sum() == case.output["aggregate"]["preemption_count"]
