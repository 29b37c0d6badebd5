"""Candidates that stand where they stood are not judged again; the decisions are those of who judges all of them."""
from random import Random

import msgspec
import numpy as np
import pytest

from routing.faces import context_of, tell, view_of, workload
from simulator.routing.llumnix.router import Llumnix, LlumnixParameters

MS, S = 10**6, 10**9
REPLICAS, REQUESTS = 6, 400
METRICS = ("all_prefills_tokens_num", "kv_cache_usage_ratio_projected", "decode_batch_size", "num_requests",
           "num_waiting_requests", "all_decodes_tokens_num", "freeness")
COUNTS = {"waiting": 3, "running": 2, "loading": 1, "waiting_prefill_tokens": 900, "running_prefill_tokens": 300,
          "unallocated_prefill_tokens": 200, "waiting_tokens": 900, "running_tokens": 900, "used_blocks": 90}


def composition(rng):
    """Return a composition for whole requests, and one that compares the same metric twice, which alters nothing."""
    metric = rng.choice(METRICS)
    filters = [{"name": "schedulability"}, {"name": "staleness", "instance_staleness_s": rng.choice([1, 60])},
               {"name": "metric", "metric": rng.choice(METRICS), "threshold": rng.choice([0.5, 3.0, 900.0]),
                "skip_in_fallback": rng.random() < 0.7, "invert": rng.random() < 0.2}]
    if rng.random() < 0.7:
        filters.append({"name": "failover", "failover_domain": rng.choice(["instance", "instance-unit"])})
    rng.shuffle(filters)
    return [{"infer_types": [{"infer_type": "neutral", "filters": filters, "selector": {"metrics": [metric] * times}}]}
            for times in (1, 2)]


class Twins:
    """Two routers before views of which the same is told."""

    def __init__(self, rng):
        more = {"enable_instance_status_local_account": rng.random() < 0.8,
                "status_steps": rng.choice([0, 1, 1, 3]), "status_poll_interval_s": rng.choice([0.05, 5.0])}
        self.requests = workload([rng.choice([10, 600, 3000]) for _ in range(REQUESTS)])
        self.requests.requests["enqueued_ns"] = self.requests.requests["scheduled_ns"] = -1
        self.views = [view_of(REPLICAS, num_blocks=100, block_size=16, max_batched_tokens=8192) for _ in range(2)]
        self.routers = [Llumnix(msgspec.convert(keys | more, LlumnixParameters), context_of(view, self.requests))
                        for keys, view in zip(composition(rng), self.views, strict=True)]

    def tell(self, **fields):
        """Tell both views the same."""
        for view in self.views:
            tell(view, **fields)

    def states(self):
        """Return what the views show."""
        return self.views[0].state_array

    def choose(self, row, now_ns):
        """Return the replica that both choose."""
        chosen = [router.choose_replica(row, now_ns) for router in self.routers]
        assert chosen[0] == chosen[1], (row, now_ns)
        for router in self.routers if chosen[0] >= 0 else ():
            router.note_sent(row, chosen[0], now_ns)
        return chosen[0]

    def leave(self, row, replica, now_ns):
        """Tell both that a request is gone."""
        for router in self.routers:
            router.note_left(row, replica, now_ns)


@pytest.mark.parametrize("seed", range(150))
def test_decisions_are_those_of_who_judges_all_candidates(seed):
    rng = Random(seed)
    twins, now_ns, there = Twins(rng), 0, []
    assert [router.keeps_ranking for router in twins.routers] == [True, False]
    for row in range(REQUESTS):
        now_ns += rng.choice([0, MS, 10 * MS, 10 * MS, 100 * MS, 500 * MS])
        if rng.random() < 0.4:
            step = np.array([rng.randint(0, 1) for _ in range(REPLICAS)])
            twins.tell(iterations=twins.states()["iterations"] + step,
                       time_ns=np.where(step > 0, now_ns, twins.states()["time_ns"]),
                       **{name: [rng.choice([0, 0, rng.randint(0, most)]) for _ in range(REPLICAS)]
                          for name, most in COUNTS.items()})
        if rng.random() < 0.05:
            twins.tell(is_routable=[rng.random() < 0.8 for _ in range(REPLICAS)])
        if there and rng.random() < 0.6:
            twins.leave(*there.pop(rng.randrange(len(there))), now_ns)
        replica = twins.choose(row, now_ns)
        if replica >= 0:
            there.append((row, replica))
            twins.requests.requests["enqueued_ns"][row] = now_ns


@pytest.mark.parametrize(("keys", "expected"), [
    ({}, True),
    ({"dispatch_neutral_load_metric": "freeness"}, True),
    ({"failover_domain": "node"}, False),                       # a candidate falls with others
    ({"data_parallel_size": 2}, False),
    ({"dispatch_top_k": 2}, False),
    ({"enable_cache_aware_scheduling": True}, False),           # requests differ
    ({"status_poll_interval_s": 0.0}, False),                   # all have changed at every decision
    ({"mode": "lite"}, False),
    ({"scheduling_policy": "flood"}, False),
])
def test_standings_are_kept_where_each_candidate_is_judged_by_itself(keys, expected):
    router = Llumnix(msgspec.convert(keys, LlumnixParameters), context_of(view_of(2), workload([10])))

    assert router.keeps_ranking == expected
