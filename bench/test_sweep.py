"""The cost of a study beyond its runs: 1,000 runs against a bare loop, the first run, 100,000 rows merged."""
import json
import resource
import time
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

import simulator
from simulator import api
from simulator.assembly.latency import Readings
from simulator.study.sweep.campaign import Campaign, How
from simulator.study.sweep.merge import merge
from simulator.study.sweep.study_file import read_study
from simulator.study.sweep.trial import Finished, Trial

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
NUM_SEEDS = 50
STUDY = f"""
extends = "{CONFIGS}/quickstart.toml"
workload.num_requests = 1000
[study]
kind = "sweep"
seeds = {NUM_SEEDS}
[study.axes]
"workload.arrival.rate_per_s" = [4.0, 8.0, 12.0, 16.0]
"engine.max_num_seqs" = [64, 128, 256, 512, 1024]
"""
pytestmark = pytest.mark.benchmark(group="sweep")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def spent_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def test_runs_of_a_sweep(benchmark, report, file, tmp_path):
    study = read_study(file)
    experiments = [replace(study.experiment_of(point), seed=seed) for point in study.points() for seed in study.seeds]
    assert len(experiments) == 1000
    readings, folders = Readings(), count()
    found = {"bare": [], "calls": [], "sweep": []}

    def bare():
        for experiment in experiments:
            api.run_ordered(api.Order(experiment, None, False, True, threads=1, readings=readings))

    def calls():
        for point in study.points():            # as users write it
            for seed in study.seeds[:10]:
                simulator.run(CONFIGS / "quickstart.toml", {
                    **point, "workload.num_requests": 1000, "seed": seed}, threads=1)

    def sweep():
        campaign = Campaign(read_study(file), tmp_path / str(next(folders)), How())
        assert sum(finished.status == "done" for finished in campaign.run()) == 1000
        campaign.merge()

    def once():
        for name, work in (("bare", bare), ("calls", calls), ("sweep", sweep)):
            before_s = spent_s()
            work()
            found[name].append(spent_s() - before_s)

    bare()                                      # files are read
    benchmark.pedantic(once, rounds=2)
    bare_s, call_s, sweep_s = min(found["bare"]) / 1000, min(found["calls"]) / 200, min(found["sweep"]) / 1000
    report.add("sweep, 1,000 runs of 1,000 requests", f"{1e3 * (sweep_s - bare_s):.2f} ms a run more", "<= 5 ms",
               f"{1e3 * sweep_s:.2f} ms, {bare_s / sweep_s:.0%} of the throughput of prepared runs "
               f"({1e3 * bare_s:.2f} ms)")
    report.add("the same against a loop of simulator.run", f"{call_s / sweep_s:.0%} of its throughput", ">= 90 %",
               f"{1e3 * call_s:.2f} ms a call; CPU time, one process")


def test_first_run(benchmark, report, file, tmp_path):
    folders, found = count(), []

    def once(num_processes):
        began_s = time.perf_counter()
        campaign = Campaign(read_study(file), tmp_path / str(next(folders)), How(num_processes))
        runs = campaign.run()
        next(runs)
        found.append(time.perf_counter() - began_s)
        runs.close()

    once(1)
    found.clear()
    benchmark.pedantic(once, args=(1,), rounds=5)
    alone_s = min(found)
    found.clear()
    for _ in range(3):
        once(2)
    report.add("first run of a sweep", f"{alone_s:.2f} s", "<= 0.5 s",
               f"in this process; {min(found):.2f} s with two others and their server")


def test_merge(benchmark, report, file, tmp_path):
    study = read_study(file)
    result = simulator.run(CONFIGS / "quickstart.toml", {"workload.num_requests": 1000})
    from simulator.study.sweep.bench import leaves
    summary = leaves(result.summary)
    extra = {"warmup_requests": 0, "warmup_found": True, "backlog": "stable", "interval": {}, "correlated": [],
             "thin": [], "too_short": False, "gpus": 1}
    points = list(study.points())
    planned = [Trial(i, f"{i:016x}", i // 5000, i % 5000, i % 5000, points[i // 5000]) for i in range(100_000)]
    finished = {trial.id: Finished(trial.id, trial.index, trial.replication, trial.seed, "done", None, 1,
                                   summary | {"ttft_ms.mean": 1.0 + trial.seed}, extra, 0.01) for trial in planned}
    benchmark.pedantic(merge, args=(study, tmp_path, planned, finished), rounds=2)
    assert json.loads((tmp_path / "summary.json").read_text())["done"] == 100_000
    report.add("merge of 100,000 runs", f"{benchmark.stats.stats.min:.1f} s", "<= 10 s", f"{len(summary)} metrics each")
