"""Schedulers of a user's, written by the page of the scheduling room alone, run wherever built-in ones do."""
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import simulator
from simulator.domain import records

# recipe_lab/schedulers.py, beside the experiment: names that the repository has nowhere.
MY_LAB = (Path(__file__).parent / "stranger/stranger_lab/schedulers.py").read_text(encoding="utf-8") + '''

from simulator.scheduling.python_scheduler import PythonSchedulerParameters


class TenantTurnsParameters(PythonSchedulerParameters, frozen=True):
    """Keys of [engine]."""

    prompts_per_turn: int = 1           # of one tenant, before the next has its turn


class TenantTurns(PythonScheduler):
    """Tenants take turns at being admitted; whose turn is longest ago is next."""

    Parameters = TenantTurnsParameters

    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        self.turn = 0
        self.last_turn = {}             # tenant -> number of its last turn

    def form_batch(self, batch, now_ns):
        for request in batch.running:
            while request.is_running and batch.budget and not batch.run(request):
                batch.preempt(batch.running[-1])
        if batch.num_preempted:
            return
        queues = {}
        for request in batch.waiting:
            queues.setdefault(request.tenant, []).append(request)
        while queues:
            tenant = min(queues, key=lambda each: self.last_turn.get(each, -1))
            for request in queues[tenant][:self.parameters.prompts_per_turn]:
                if not (batch.places and batch.budget and batch.admit(request, whole=True)):
                    return
            del queues[tenant][:self.parameters.prompts_per_turn]
            if not queues[tenant]:
                del queues[tenant]
            self.turn += 1
            self.last_turn[tenant] = self.turn
'''
EXPERIMENT = """
seed = 5
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
[engine]
scheduler = "recipe_lab.schedulers:Lifo"
max_num_seqs = 4
max_num_batched_tokens = 256
max_model_len = 600
num_gpu_blocks = 60
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
[workload]
type = "trace"
path = "requests.csv"
"""
LIFO, TURNS = "recipe_lab.schedulers:Lifo", "recipe_lab.schedulers:TenantTurns"
POOLS = [{"name": "small", "replicas": 1}, {"name": "large", "replicas": 2, "engine": {"num_gpu_blocks": 120}}]
# Where both are to serve every request: routers, failures, pools, autoscaling, migration.
PLACES = {
    "one": {},
    "least_loaded": {"topology.replicas": 3, "cluster.routing.policy": "least_loaded"},
    "cache_aware": {"topology.replicas": 3, "cluster.routing.policy": "cache_aware"},
    "weighted": {"topology.replicas": 3, "cluster.routing": {"policy": "weighted", "profile": "llm-d", "scorers": []}},
    "migration": {"topology.replicas": 2, "cluster.rescheduling": {
        "policy": "rebalance", "interval_s": 0.05, "kv_bytes_per_token": 1e3, "bandwidth_gb_per_s": 1.0}},
    "autoscaling": {"pools": [{"name": "all", "replicas": 1, "max_replicas": 3}], "autoscaling": {
        "policy": "utilisation", "target": 0.3, "interval_s": 0.2, "loading_delay": {"mean_s": 0.1}}},
    "failures": {"topology.replicas": 2, "failures": [{"kind": "stop", "at_s": 0.3, "duration_s": 0.2}]},
    "pools": {"pools": POOLS},
    "pools_that_fail": {
        "pools": POOLS, "failures": [{"kind": "stop", "pool": "large", "at_s": 0.3, "duration_s": 0.2}]},
}


def random_trace(seed, num_requests=60):
    """Return rows of a trace: tenants a to c, prompts that need up to 20 blocks of 16 tokens."""
    rng = np.random.default_rng(seed)
    arrived = np.sort(rng.uniform(0, 1.5, num_requests))
    rows = zip(arrived, rng.integers(5, 320, num_requests), rng.integers(1, 60, num_requests),
               rng.choice(["a", "b", "c"], num_requests, p=[0.7, 0.2, 0.1]), strict=True)
    return [f"{time_s:.6f},{prompt},{output},{tenant}" for time_s, prompt, output, tenant in rows]


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Give a folder with the module of the user's, and a function that runs a trace there."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "recipe_lab").mkdir()
    (tmp_path / "recipe_lab" / "schedulers.py").write_text(MY_LAB)
    (tmp_path / "a.toml").write_text(EXPERIMENT)

    def run(rows, scheduler, **overrides):
        head = "arrived_at,num_prefill_tokens,num_decode_tokens,tenant"
        (tmp_path / "requests.csv").write_text("\n".join([head, *rows]) + "\n")
        return simulator.run(tmp_path / "a.toml", {"engine.scheduler": scheduler} | overrides)

    yield run
    for name in [name for name in sys.modules if name.partition(".")[0] == "recipe_lab"]:
        del sys.modules[name]


def completed_ms(result):
    return (result.requests["completed_ns"] / 1e6).tolist()


def test_last_come_is_first_served_and_nobody_is_interrupted(lab):
    # One at a time, two iterations of 10 ms each. The first begins at 0; at 20 ms the third is the youngest.
    result = lab(["0,10,2,a", "0.001,10,2,a", "0.002,10,2,a"], LIFO, **{"engine.max_num_seqs": 1})

    assert completed_ms(result) == [20, 60, 40]


def test_who_might_not_fit_to_its_end_waits(lab):
    # Each needs 3 blocks for 10 + 30 tokens, of 5 blocks: one after the other, the youngest first. 10 ms a token.
    result = lab(["0,10,30,a"] * 2, LIFO, **{"engine.num_gpu_blocks": 5, "engine.max_model_len": 40})

    assert completed_ms(result) == [600, 300]
    assert result.summary["preemptions"] == 0


def test_tenants_take_turns(lab):
    # One at a time, one iteration of 10 ms each: a, then b, who has not had a turn, then a and b again.
    rows = ["0,10,1,a", "0,10,1,a", "0,10,1,a", "0,10,1,b", "0,10,1,b"]

    assert completed_ms(lab(rows, TURNS, **{"engine.max_num_seqs": 1})) == [10, 30, 50, 20, 40]


def test_keys_of_the_scheduler_of_a_user_act(lab):
    # Both places are taken by tenant a, whose turn has two prompts.
    rows = ["0,10,1,a", "0,10,1,a", "0,10,1,b"]
    result = lab(rows, TURNS, **{"engine.max_num_seqs": 2, "engine.prompts_per_turn": 2})

    assert completed_ms(result) == [10, 10, 20]


def test_wrong_keys_of_the_scheduler_of_a_user_are_named(lab):
    with pytest.raises(simulator.InputErrors, match=r"engine\.prompts_per_turns: unknown key; did you mean"):
        lab(["0,10,1,a"], TURNS, **{"engine.prompts_per_turns": 2})


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scheduler", [LIFO, TURNS])
@pytest.mark.parametrize("seed", [1, 2])
def test_all_are_served_in_any_cluster(lab, scheduler, place, seed):
    rows = random_trace(seed)

    result = lab(rows, scheduler, **PLACES[place])
    again = lab(rows, scheduler, **PLACES[place])

    assert Counter(result.requests["status"].tolist()) == {records.COMPLETED: len(rows)}
    assert not result.summary["diagnosis"]
    assert result.requests["output_tokens"].tolist() == [int(row.split(",")[2]) for row in rows]
    assert scheduler == TURNS or result.summary["preemptions"] == 0
    assert np.array_equal(result.requests, again.requests)      # the same file, the same results


def test_preemptions_happen_where_the_recipe_says_who_makes_room(lab):
    result = lab(random_trace(1), TURNS, **PLACES["one"])

    assert result.summary["preemptions"] > 0


@pytest.mark.parametrize(("overrides", "reason"), [
    ({"topology.pipeline_parallel": 2}, "stages"),
    ({"pools": [{"name": role, "role": role} for role in ("prefill", "decode")], "kv_transfer.protocol": "nixl"},
     "cannot take over what another replica has computed: it requests no KV beyond its blocks")])
def test_what_the_page_excludes_is_refused_with_the_reason(lab, overrides, reason):
    with pytest.raises(simulator.InputErrors, match=reason):
        lab(["0,10,1,a"], LIFO, **overrides)
