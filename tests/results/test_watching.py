"""Samples of replicas and decisions of routers: exact, and without influence."""
from random import Random

import h5py
import numpy as np
import pytest

import simulator
from simulator import registry
from simulator.errors import InputErrors

MS = 1_000_000

# Each iteration takes 10 ms; 10 KV blocks.
PLAIN = """
topology = {replicas = 2}
engine = {num_gpu_blocks = 11, max_model_len = 128}
output = {replica_samples_s = 0.005, decisions = 2}
[latency]
backend = "linear"
base_us = 10000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
[workload]
type = "trace"
path = "requests.csv"
"""
# Request 0 runs on replica 0 from 0 to 20 ms, request 1 on replica 1 from 1 to 11. Request 2 comes to replica 0 at 12,
# waits until 20, is done at 40.
REQUESTS = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,2\n0.001,10,1\n0.012,20,2\n"


def run(folder, experiment=PLAIN, requests=REQUESTS, overrides=(), **options):
    (folder / "requests.csv").write_text(requests)
    (folder / "experiment.toml").write_text(experiment)
    return simulator.run(folder / "experiment.toml", overrides, **options)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return run(tmp_path_factory.mktemp("plain"))


def test_replicas_are_sampled_at_exact_instants(result):
    rows = [tuple(row) for row in result.replica_samples]

    # time, replica, waiting, running, used blocks, in flight; before whatever happens at that instant
    assert rows[:10] == [
        (0, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0),
        (5 * MS, 0, 0, 1, 1, 1), (5 * MS, 1, 0, 1, 1, 1),
        (10 * MS, 0, 0, 1, 1, 1), (10 * MS, 1, 0, 1, 1, 1),
        (15 * MS, 0, 1, 1, 1, 2), (15 * MS, 1, 0, 0, 0, 0),
        (20 * MS, 0, 1, 1, 1, 2), (20 * MS, 1, 0, 0, 0, 0)]
    assert rows[10:] == [row for time in (25, 30, 35, 40)
                         for row in ((time * MS, 0, 0, 1, 2, 1), (time * MS, 1, 0, 0, 0, 0))]


def test_decisions_tell_what_was_better(result):
    # Round robin has no scores: minus (waiting + running + in flight) counts. At 12 ms replica 0 has a request running.
    names = ("time_ns", "request", "replica", "score", "best_score", "regret", "num_candidates", "entrance")
    assert [tuple(row) for row in result.decisions[list(names)]] == [
        (0, 0, 0, 0.0, 0.0, 0.0, 2, 0), (1 * MS, 1, 1, 0.0, 0.0, 0.0, 2, 0), (12 * MS, 2, 0, -2.0, 0.0, 2.0, 2, 0)]
    assert result.summary["decisions"] == {"total": 3, "routed": 3, "refused": 0, "unique_targets": 2,
                                           "targets": [2, 1], "mean_regret": 2 / 3, "max_regret": 2.0}


def test_candidates_are_ranked_with_the_state_that_was_seen(result):
    names = ("decision", "rank", "replica", "score", "waiting", "running", "in_flight", "used_blocks", "free_blocks")
    assert [tuple(row) for row in result.candidates[list(names)]] == [
        (0, 0, 0, 0.0, 0, 0, 0, 0, 10), (0, 1, 1, 0.0, 0, 0, 0, 0, 10),
        (1, 0, 1, 0.0, 0, 0, 0, 0, 10), (1, 1, 0, -2.0, 0, 1, 1, 1, 9),
        (2, 0, 1, 0.0, 0, 0, 0, 0, 10), (2, 1, 0, -2.0, 0, 1, 1, 1, 9)]


def test_only_so_many_candidates_are_kept(tmp_path):
    found = run(tmp_path, overrides={"output.decisions": 1})

    assert found.candidates["rank"].tolist() == [0, 0, 0]
    assert found.candidates["replica"].tolist() == [0, 1, 1]
    assert found.decisions["regret"].tolist() == [0.0, 0.0, 2.0]


def test_the_file_holds_the_same_rows(result, tmp_path):
    written = run(tmp_path, out=tmp_path / "out")

    for name in ("replica_samples", "decisions", "candidates"):
        np.testing.assert_array_equal(getattr(written, name), getattr(result, name))
    with h5py.File(tmp_path / "out" / "results.h5") as file:
        assert file["candidates"].dtype.names == (
            "decision", "score", "rank", "replica", "waiting", "running", "in_flight", "used_blocks", "free_blocks")
    assert written.summary == result.summary
    again = run(tmp_path, out=tmp_path / "again")
    assert (again.directory / "results.h5").read_bytes() == (written.directory / "results.h5").read_bytes()


def test_many_samples_come_one_after_the_other(tmp_path):
    samples = run(tmp_path, overrides={"output.replica_samples_s": 1e-6}, out=tmp_path / "out").replica_samples

    # 0, 1, ..., 40,000 us, each for two replicas; at 40,000 request 2 is still there
    assert np.array_equal(samples["time_ns"], 1000 * np.repeat(np.arange(40_001), 2))
    assert np.array_equal(samples["replica"], np.tile([0, 1], 40_001))
    assert samples["waiting"].sum() == 8_000        # request 2 comes at 12,000 and is taken up at 20,000


def test_rows_that_nobody_asked_for_are_named(tmp_path):
    found = run(tmp_path, overrides={"output.decisions": 0, "output.replica_samples_s": 0.0})

    assert "decisions" not in found.summary
    with pytest.raises(LookupError, match=r"\[output\] decisions was 0"):
        _ = found.candidates
    with pytest.raises(LookupError, match=r"\[output\] replica_samples_s was 0"):
        _ = found.replica_samples


def test_requests_that_no_replica_serves_are_refused_before_any_router_is_asked(tmp_path):
    model = 'model = {name = "llama-3.1-8b"}\nhardware = {name = "h100-sxm-80gb"}\n'
    pools = '[[pools]]\nname = "a"\nserves = "small"\n[[pools]]\nname = "b"\nserves = "big"\ncost_per_hour = 2.0\n'
    requests = ("arrived_at,num_prefill_tokens,num_decode_tokens,model\n"
                "0,10,1,big\n0,10,1,small\n0,10,1,other\n1,10,1,big\n")

    found = run(tmp_path, model + PLAIN + pools, requests)

    assert found.summary["by_cause"] == {"rejected": {"no_replica": 1}}
    # gateways are numbered as the pools; small has replicas 0 and 1
    assert list(zip(found.decisions["request"], found.decisions["entrance"], found.decisions["replica"],
                    strict=True)) == [(0, 1, 2), (1, 0, 0), (3, 1, 3)]
    assert found.candidates["decision"].tolist() == [0, 0, 1, 1, 2, 2]
    assert {name: part["requests"]["completed"] for name, part in found.summary["by_model"].items()} == {
        "big": 2, "small": 1, "other": 0}
    assert found.summary["by_pool"]["b"]["cost"] == pytest.approx(2 * 2.0 * found.summary["clock_s"] / 3600)
    assert [replica["pool"] for replica in found.summary["replicas"]] == ["a", "a", "b", "b"]


def test_fitness_is_asked_for_by_its_weights(tmp_path):
    found = run(tmp_path, overrides={"fitness.throughput": 2.0})

    rate = found.summary["request_throughput"]
    assert rate == 3 / 0.04
    assert found.summary["fitness"] == {"total": pytest.approx(2 * rate / (rate + 100)), "parts": {
        "throughput": {"weight": 2.0, "value": pytest.approx(rate / (rate + 100))}}}
    assert "fitness" not in run(tmp_path).summary
    with pytest.raises(InputErrors, match=r"fitness\.p99_tft: unknown key; did you mean p99_ttft"):
        run(tmp_path, overrides={"fitness.p99_tft": 1.0})


def traffic(seed):
    """Return requests that share prompts, in bursts, of tenants and sessions."""
    rng, now = Random(seed), 0.0
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt,tenant,session,slo_class"]
    for _ in range(150):
        now += rng.choice([0.0, 0.001, 0.004, 0.03])
        shared, own = 16 * rng.randint(0, 4), rng.randint(1, 60)
        prompt = f"s{rng.randint(0, 3)}:{shared}/:{own}" if shared else f":{own}"
        lines.append(f"{now:.3f},{shared + own},{rng.randint(0, 12)},{prompt},t{rng.randint(0, 2)},"
                     f"u{rng.randint(0, 9)},{rng.choice(['critical', 'standard', 'batch'])}")
    return "\n".join(lines) + "\n"


CROWDED = PLAIN.replace("replicas = 2", "replicas = 5").replace("_len = 128", "_len = 128, max_num_seqs = 4")
FRONTS = {
    "live": "",
    "snapshots": "cluster.routing.snapshot_refresh_interval_s = 0.03\n",
    "queue": ('cluster.gateway_queue = {saturation = {detector = "utilisation"}, tick_s = 0.01}\n'
              "cluster.routing.snapshot_refresh_interval_s = 0.02\ncluster.routing.latency_s = 0.003\n"),
    "delays": "",
}


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("router", sorted(registry.KINDS["router"].entries.keys() - {"split_wise"}))
def test_watching_changes_nothing(tmp_path, router, front):
    requests, chosen = traffic(len(router)), f'cluster.routing.policy = "{router}"\n{FRONTS[front]}seed = 5\n'
    delays = {"latency.host.queue_base_us": 2500.0 if front == "delays" else 0.0}
    nothing = {"output.decisions": 0, "output.replica_samples_s": 0.0, **delays}

    watched = run(tmp_path, chosen + CROWDED, requests, delays)
    alone = run(tmp_path, chosen + CROWDED, requests, nothing)

    for name in ("requests", "iterations"):
        np.testing.assert_array_equal(getattr(watched, name), getattr(alone, name))
    decisions, table = watched.decisions, watched.requests
    routed = decisions[decisions["replica"] >= 0]
    assert np.array_equal(routed["replica"], table["replica"][routed["request"]])
    assert (np.diff(decisions["time_ns"]) >= 0).all()
    assert (decisions["regret"] >= 0).all()
    assert np.isfinite(decisions["regret"]).all()
    assert len(watched.replica_samples) % 5 == 0


FICKLE = """
import numpy as np

from simulator.routing.scoring.python import PythonScorer


class Fickle(PythonScorer):
    asked = 0

    def rate_all(self, request, now_ns):
        self.asked += 1
        return np.roll([1.0, 0.6, 0.3, 0.2, 0.1], self.asked)
"""


def test_a_scorer_is_asked_once_for_each_decision(tmp_path):
    (tmp_path / "fickle_lab.py").write_text(FICKLE)
    fickle = 'cluster.routing = {policy = "weighted", scorers = [{name = "fickle_lab:Fickle", weight = 1.0}]}\n'

    watched = run(tmp_path, fickle + CROWDED, traffic(1))
    alone = run(tmp_path, fickle + CROWDED, traffic(1), {"output.decisions": 0})

    assert watched.requests["replica"].tolist() == [(row + 1) % 5 for row in range(150)]
    assert alone.requests["replica"].tolist() == watched.requests["replica"].tolist()
    assert watched.decisions["best_score"].tolist() == watched.decisions["score"].tolist() == [1.0] * 150


def test_the_weighted_router_takes_the_best(tmp_path):
    found = run(tmp_path, 'cluster.routing.policy = "weighted"\n' + CROWDED, traffic(1))

    assert found.decisions["regret"].max() == 0.0
    best = found.candidates[found.candidates["rank"] == 0]
    assert np.array_equal(best["score"], found.decisions["best_score"])
