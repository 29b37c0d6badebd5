"""Decisions of LiteLLM's routing strategies, repeated by the routers: cases of cluster_2026/litellm.jsonl.

A recorded choice at random has its `candidates`, or probabilities; the router must choose among the same replicas. A
draw is replaced by each of 0 .. n - 1 in turn, so that all replicas that a router may choose are found.
"""
import json

import pytest

from routing.faces import router_of, tell, view_of, workload
from simulator.domain import records
from simulator.domain.guards import Cooldown
from simulator.routing.parts.quotas import Quota
from support.goldens import GOLDENS

PATH = GOLDENS / "cluster_2026" / "litellm.jsonl"
CASES = [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []
MOST_EQUAL = 8              # deployments that may tie: words 0 .. 7 reach each of them
EPOCH_S = 6000              # an instant at the begin of a minute: requests were sent before the first of them ended

pytestmark = pytest.mark.skipif(not CASES, reason="no recorded cases of LiteLLM")


def cases_of(what):
    """Return (case, number of replica by name, a view, a router's quotas) of the cases of a strategy."""
    for case in (case for case in CASES if case["what"] == what):
        names = {deployment["id"]: i for i, deployment in enumerate(case.get("deployments", ()))}
        quotas = [quota_of(deployment) for deployment in case.get("deployments", ())]
        yield case, names, quotas


def quota_of(deployment):
    return Quota(*(deployment.get(field) for field in Quota._fields))


def open_only(view, names, healthy):
    tell(view, is_routable=[name in healthy for name in names], pool=range(len(names)))


def names_chosen(router, view, names, row, now_ns):
    """Return all replicas that a router may choose now, by name; its draws are replaced."""
    found = set()
    for _ in range(MOST_EQUAL):
        view.touch()
        found.add(router.choose_replica(row, now_ns))
    return sorted(name for name, i in names.items() if i in found)


def ns(seconds):
    return round((EPOCH_S + seconds) * 1e9)


def end(requests, row, op):
    """Write how a request ended into its record."""
    began_ns = ns(op["t"]) - round(op["seconds"] * 1e9)
    record = requests.requests[row:row + 1]
    record["status"] = records.COMPLETED if op["op"] == "success" else records.TIMED_OUT
    record["prompt_tokens"], record["output_tokens"] = op["prompt_tokens"], op["completion_tokens"]
    record["completed_ns"], record["first_token_ns"] = ns(op["t"]), began_ns + round(op["ttft"] * 1e9)
    return began_ns


def test_latencies_choose_the_same_candidates():
    for case, names, quotas in cases_of("latency-based-routing"):
        requests, view = workload([0] * (len(case["ops"]) + 1)), view_of(len(names))
        tell(view, pool=range(len(names)))
        keys = {"ttft_percentile": case["args"]["ttft_percentile"]} if "ttft_percentile" in case["args"] else {}
        router = router_of(
            "litellm_latency", view, requests, draws=range(MOST_EQUAL), quotas=quotas, ttl_s=case["args"]["ttl"],
            lowest_latency_buffer=case["args"]["lowest_latency_buffer"],
            max_latency_list_size=case["args"]["max_latency_list_size"], **keys)
        for row, op in enumerate(case["ops"]):
            router.streams = op["stream"]
            if op["op"] == "choose":
                open_only(view, names, op["healthy"])
                found = names_chosen(router, view, names, len(case["ops"]), ns(op["t"]))
                assert found == sorted(op["candidates"] or []), (case["seed"], row)
            else:
                router.note_sent(row, names[op["id"]], end(requests, row, op))
                router.note_left(row, names[op["id"]], ns(op["t"]))


def test_usage_chooses_the_same_candidates():
    for case, names, quotas in cases_of("usage-based-routing-v2"):
        requests, view = workload([0, 0]), view_of(len(names))
        tell(view, pool=range(len(names)))
        router = router_of("litellm_usage", view, requests, draws=range(MOST_EQUAL), quotas=quotas)
        requests.requests["status"] = records.COMPLETED
        for number, call in enumerate(case["calls"]):       # each in a minute of its own
            for name, tokens, sent in zip(call["healthy"], call["tpm"], call["rpm"], strict=True):
                requests.requests["prompt_tokens"][0] = tokens or 0
                router.note_left(0, names[name], ns(60 * number))
                for _ in range(sent or 0):
                    router.note_sent(1, names[name], ns(60 * number))
            requests.requests["prompt_tokens"][1] = call["input_tokens"]
            open_only(view, names, call["healthy"])
            found = names_chosen(router, view, names, 1, ns(60 * number))
            assert found == sorted(call["candidates"]), (case["seed"], number)


def test_shuffles_have_the_same_probabilities():
    for case in (case for case in CASES if case["what"] == "simple-shuffle"):
        for call in case["calls"]:
            deployments = call["deployments"]
            view = view_of(len(deployments), pool=range(len(deployments)))
            router = router_of("weighted_random", view, quotas=map(quota_of, deployments))
            weights = router.scores(0, 0)
            assert (weights / weights.sum()).tolist() == pytest.approx(call["probabilities"], abs=1e-9), case["seed"]


def test_failures_cool_the_same_deployments_down():
    cooldown = Cooldown()
    for case in (case for case in CASES if case["what"] == "cooldown"):
        for call in case["calls"]:
            status, counts = call["status"], (call["successes_this_minute"], call["failures_this_minute"])
            assert cooldown.considers(status) == call["considered"], (case["seed"], call)
            cools = cooldown.cools(status, *counts, call["deployments_in_group"])
            assert cools == call["cools_down"], (case["seed"], call)
