"""Runs that give up requests when they end have the numbers of ordinary runs."""
import json
import math
import mmap
import random
import subprocess
import sys

import pytest

import simulator
from simulator.api import Order, run_ordered
from simulator.assembly.parts.streamed import ROUTERS, SCORERS
from simulator.core.quantile_sketch import RELATIVE_ERROR
from simulator.errors import InputErrors
from simulator.results.stretches import MOST_STRETCHES
from simulator.workload import chunks
from simulator.workload.load import load
from simulator.workload.types import trace
from support.every_key import read

PERCENTILES = ("p50", "p90", "p95", "p99")
EXACT = 1e-10           # sums are rounded once
PS_IN_MS = 1e-9         # TPOT is rounded to it
OF_STRETCHES = ("served_share", "growth_per_s")         # of more requests than there are stretches


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_ROWS", mmap.PAGESIZE // 4)


def data(streamed, count=6000, seed=1, router="random", **engine):
    return {
        "seed": seed, "topology": {"replicas": 3}, "slo": {"ttft_ms": 60.0},
        "engine": {"num_gpu_blocks": 200, "max_model_len": 700, "max_num_seqs": 16} | engine,
        "latency": {"backend": "linear", "base_us": 5000.0, "per_prefill_token_us": 9.5},
        "cluster": {"routing": {"policy": router}}, "output": {
            "requests": False, "iterations": False, "streamed": streamed},
        "workload": {"type": "synthetic", "num_requests": count, "arrival": {"process": "gamma", "rate_per_s": 200.0,
                                                                             "cv": 2.0},
                     "prompt_tokens": {"distribution": "lognormal", "mean": 100.0, "cv": 1.0},
                     "output_tokens": {"distribution": "exponential", "mean": 30.0, "max": 200}}}


def served(streamed, count=6000, seed=1, **others):
    return simulator.run(read(data(streamed, count, seed, **others))).summary


def differences(one, other, path=""):
    """Yield the paths of values that differ by more than the stated error."""
    if isinstance(one, dict):
        for key in one.keys() | other.keys():
            if key not in ("diagnosis", "quantiles"):
                yield from differences(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list):
        for i, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}[{i}]")
    elif isinstance(one, float):
        error = RELATIVE_ERROR if path.endswith(PERCENTILES) else EXACT
        if not math.isclose(one, other, rel_tol=error, abs_tol=PS_IN_MS if ".tpot_ms" in path else 1e-12):
            yield path, one, other
    elif one != other:
        yield path, one, other


@pytest.mark.parametrize(("seed", "others"), [
    (1, {}), (2, {"async_scheduling": False, "router": "round_robin"}), (3, {"router": "least_loaded"}),
    (4, {"num_gpu_blocks": 60, "max_model_len": 500})])
def test_numbers_are_those_of_an_ordinary_run(seed, others):
    ordinary, streamed = served(False, seed=seed, **others), served(True, seed=seed, **others)
    assert ordinary["requests"]["injected"] < MOST_STRETCHES
    assert not list(differences(ordinary, streamed))
    assert list(ordinary) == [key for key in streamed if key != "quantiles"]
    assert streamed["quantiles"] == {"relative_error": RELATIVE_ERROR}


def test_cut_and_refused_requests_are_counted():
    streamed = served(True, max_model_len=120)
    assert min(streamed["requests"][name] for name in ("rejected", "length_capped")) > 0
    assert not list(differences(served(False, max_model_len=120), streamed))


def test_batch_means_of_long_runs_are_of_stretches():
    count = 2 * MOST_STRETCHES
    ordinary, streamed = served(False, count), served(True, count)
    wrong = [path for path, *_ in differences(ordinary, streamed)]
    assert all(path.endswith(OF_STRETCHES) for path in wrong)
    assert math.isclose(ordinary["served_share"], streamed["served_share"], abs_tol=1e-3)


@pytest.mark.parametrize("router", ROUTERS)
def test_routers_send_each_request_to_the_same_replica(router):
    ordinary, streamed = (data(each, router=router) for each in (False, True))
    for table in (ordinary, streamed) if router == "weighted" else ():
        table["cluster"]["routing"]["scorers"] = [{"name": name, "weight": 1.0} for name in SCORERS]
    assert not list(differences(*(simulator.run(read(table)).summary for table in (ordinary, streamed))))


LATE = {"output_token_us": 9000.0, "completion_us": 300_000.0}


@pytest.mark.parametrize(("router", "horizon_s", "host"), [
    ("random", 9.0, {}), ("random", 21.0, LATE), ("least_loaded", 21.0, {}), ("power_of_two", 0.004, {}),
    ("round_robin", 1e6, {}), ("lor", 15.0, LATE)])
def test_a_horizon_cuts_the_same_requests(router, horizon_s, host):
    ordinary, streamed = (
        simulator.run(read(data(each, router=router) | {"horizon_s": horizon_s, "latency": {
            "backend": "linear", "base_us": 5000.0, "per_prefill_token_us": 9.5, "host": host}})).summary
        for each in (False, True))
    assert not list(differences(ordinary, streamed))
    assert [note for note in ordinary["diagnosis"] if "horizon_s" in note] == [
        note for note in streamed["diagnosis"] if "horizon_s" in note]


def closed_loop(streamed, load, router="least_loaded", **workload):
    table = data(streamed, router=router)
    del table["workload"]["arrival"]
    table["workload"] |= {"load": {"mode": "concurrency", "concurrency": 40} | load} | workload
    return table


@pytest.mark.parametrize(("load", "keys"), [
    ({}, {}), ({"concurrency": 7, "think_time_s": 0.05, "client_delay_s": 0.001}, {"horizon_s": 30.0}),
    ({"think_time_s": {"distribution": "lognormal", "mean": 0.3, "cv": 2.0}, "ramp_up_s": 3.0}, {}),
    ({"think_time_s": {"distribution": "exponential", "mean": 0.3}, "think_time_from": "arrival"}, {"seed": 2}),
    ({"think_time_s": {"distribution": "uniform", "max": 0.3}, "think_time_from": "arrival_mean"}, {}),
    ({"concurrency": 9000}, {}), ({}, {"horizon_s": 7.0})])
def test_a_closed_loop_has_the_numbers_of_an_ordinary_run(load, keys):
    ordinary, streamed = (
        simulator.run(read(closed_loop(each, load) | keys)).summary for each in (False, True))
    assert not list(differences(ordinary, streamed))
    assert ordinary["requests"]["completed"] > 900


@pytest.mark.parametrize(("duration_s", "keys", "is_over"), [
    (7.0, {}, True), (6.0, {"horizon_s": 7.0}, True), (7.5, {"horizon_s": 7.0}, False)])
def test_slots_send_nothing_after_the_end(duration_s, keys, is_over):
    ordinary, streamed = (
        simulator.run(read(closed_loop(each, {}, duration_s=duration_s) | keys)).summary for each in (False, True))
    assert not list(differences(ordinary, streamed))
    assert bool(streamed["requests"]["not_sent"]) == is_over
    assert [note for note in ordinary["diagnosis"] if "horizon_s" in note] == [
        note for note in streamed["diagnosis"] if "horizon_s" in note]


def test_the_end_of_a_closed_loop_needs_a_number():
    table = closed_loop(True, {}, duration_s=7.0)
    del table["workload"]["num_requests"]
    with pytest.raises(InputErrors, match=r"num_requests, or duration_s without slots.*: the number of requests must"):
        read(table)


SHARED = {"num_tokens": 100, "num_prompts": 40, "popularity": "zipf", "share": 0.8}
FEW_BLOCKS = {"num_gpu_blocks": 60, "max_model_len": 600}
WINDOWS = {"kv_cache_groups": [{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 64}]}


@pytest.mark.parametrize(("shared", "router", "engine"), [
    (SHARED, "least_loaded", {}), (SHARED, "random", FEW_BLOCKS), ({"num_tokens": 64}, "round_robin", {}),
    ({"num_tokens": 64, "num_prompts": 9, "num_questions": 200}, "least_loaded", {}),
    (SHARED, "round_robin", FEW_BLOCKS | {"vllm_version": "0.10"}), (SHARED, "least_loaded", WINDOWS)])
def test_shared_prompts_have_the_hits_of_an_ordinary_run(shared, router, engine):
    ordinary, streamed = (data(each, router=router, **engine) for each in (False, True))
    for table in (ordinary, streamed):
        table["workload"]["system_prompts"] = shared
    ordinary, streamed = (simulator.run(read(table)).summary for table in (ordinary, streamed))
    assert not list(differences(ordinary, streamed))
    assert streamed["prefix_cache"]["hit_tokens"] > 10_000


def test_a_closed_loop_shares_prompts():
    ordinary, streamed = (simulator.run(read(
        closed_loop(each, {}, system_prompts=SHARED))).summary for each in (False, True))
    assert not list(differences(ordinary, streamed))
    assert streamed["prefix_cache"]["hit_tokens"] > 10_000


PAUSES = (0.0, 0.03, {"distribution": "exponential", "mean": 0.2}, {"distribution": "uniform", "max": 0.2},
          {"distribution": "lognormal", "mean": 0.2, "cv": 1.5})
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens,session\n" + "".join(
    f"{3 + i / 190:.6f},{i * 37 % 190 + 1},{i * 53 % 61},{i % 89}\n" for i in range(6000))


@pytest.mark.parametrize(("router", "keys"), [
    ("session", {}), ("consistent_hash", {"start_s": 9.0, "max_requests": 3000}), ("least_loaded", {"time_scale": 0.8}),
    ("round_robin", {"duration_s": 20.0, "time_origin": "trace"}),
    ("lor", {"load": {"mode": "concurrency", "concurrency": 60, "ramp_up_s": 1.0, "think_time_s": PAUSES[-1]}}),
    ("session", {"load": {"mode": "concurrency", "concurrency": 90}, "start_s": 5.0, "duration_s": 15.0})])
def test_a_trace_has_the_numbers_of_an_ordinary_run(tmp_path, monkeypatch, router, keys):
    monkeypatch.setattr(trace, "PIECE_BYTES", 9999)
    (tmp_path / "trace.csv").write_text(TRACE)
    ordinary, streamed = (
        simulator.run(read(data(each, router=router, max_model_len=200) | {"workload": {
            "type": "trace", "path": str(tmp_path / "trace.csv")} | keys})).summary for each in (False, True))
    assert ordinary["requests"]["completed"] > 2000
    assert not list(differences(ordinary, streamed))
    assert [note for note in streamed["diagnosis"] if "percentiles are" not in note] == ordinary["diagnosis"]


@pytest.mark.parametrize("router", ["random", "least_loaded"])
def test_fast_forward_does_not_show(router):
    assert json.dumps(served(True, router=router, fast_forward=False)) == json.dumps(served(True, router=router))


def test_a_stopped_run_has_the_numbers_of_what_ended():
    calls = []

    def stop():
        calls.append(1)
        return len(calls) > 1

    experiment = read(data(True, 200_000, fast_forward=False))
    summary = run_ordered(Order(experiment, None, False, True, stop=stop)).summary
    counts = summary["requests"]
    assert not summary["complete"]
    assert 0 < counts["completed"] < counts["injected"] < 200_000
    assert sum(counts[name] for name in ("completed", "rejected", "waiting", "running")) == counts["injected"]
    assert any("of 200,000 requests" in note for note in summary["diagnosis"])


def test_the_table_of_requests_is_not_kept(tmp_path):
    experiment = read(data(True, 100))
    with pytest.raises(LookupError, match="requests"):
        _ = simulator.run(experiment).requests
    written = simulator.run(experiment, out=tmp_path / "out")
    assert written.replicas["completed"].sum() == 100
    with pytest.raises(LookupError, match="requests"):
        _ = written.requests


@pytest.mark.parametrize(("keys", "is_written"), [({}, False), ({"horizon_s": 9.0}, True)])
def test_every_nth_request_is_kept(tmp_path, keys, is_written):
    ordinary, streamed = data(False) | keys, data(True) | keys
    ordinary["output"] |= {"requests": True}
    streamed["output"] |= {"requests_every": 7}
    rows = simulator.run(read(streamed), out=tmp_path / "out" if is_written else None).sampled_requests
    whole = simulator.run(read(ordinary)).requests
    came = whole[whole["arrival_ns"] <= keys.get("horizon_s", 1e9) * 1e9][::7]
    assert len(rows) > 200
    for name in rows.dtype.names:
        assert (rows[name] == came[name]).all()


def test_no_request_is_kept_by_default():
    with pytest.raises(LookupError, match="requests_every was 0"):
        _ = simulator.run(read(data(True, 100))).sampled_requests


def test_requests_of_others_are_refused():
    experiment = read(data(True, 100))
    with pytest.raises(InputErrors, match="the requests were drawn before the run"):
        simulator.run(experiment, workload=load(experiment.workload, 1))
    with pytest.raises(InputErrors, match="studies, and runs in parts"):
        run_ordered(Order(experiment, None, False, True, settle=lambda run: None))


MEMORY = """
import resource, sys
sys.path[:0] = {path!r}
import simulator
from results.test_streamed import data
from support.every_key import read

table = data(True, {count})
for section, keys in {sections!r}.items():
    table[section] |= keys
if "load" in table["workload"]:
    del table["workload"]["arrival"]
simulator.run(read(table))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
SHORT = {"output_tokens": {"distribution": "constant", "tokens": 1}}


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
@pytest.mark.parametrize(("sections", "few", "many", "most"), [
    ({"workload": SHORT}, 100_000, 230_000, 8),                     # of 22 MB for the rows of the further requests
    ({"workload": SHORT, "topology": {"pipeline_parallel": 2}}, 100_000, 430_000, 4),       # of 7 for turns
    # of 26, pauses of slots among them
    ({"workload": SHORT | {"load": {"mode": "concurrency", "concurrency": 64, "think_time_s": 0.1}}}, 100_000, 230_000,
     4),
    # of 31, with segments of shared prompts
    ({"workload": SHORT | {"system_prompts": {"num_tokens": 64, "num_prompts": 50}}}, 100_000, 230_000, 4),
    # of 7 for tokens in flight at preemptions, a list for each replica
    ({"topology": {"replicas": 8}, "engine": {"num_gpu_blocks": 60, "max_model_len": 500},
      "workload": {"arrival": {"process": "poisson", "rate_per_s": 150.0}}}, 100_000, 300_000, 4)])
def test_memory_does_not_grow_with_the_requests(sections, few, many, most):
    found = []
    for count in (few, many):       # a process each: memory of an earlier run is used again, and zeroed
        code = MEMORY.format(path=[each for each in sys.path if each], sections=sections, count=count)
        found.append(int(subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout))
    assert found[1] - found[0] < most * 1024


def drawn(rng, streamed):
    """Return an experiment of features that meet at random."""
    engine = rng.choice(({}, FEW_BLOCKS, WINDOWS, {"async_scheduling": False}, {"vllm_version": "0.10"},
                         {"enable_prefix_caching": False}, {"num_gpu_blocks": 60, "max_model_len": 300}))
    router = rng.choice([each for each in ROUTERS if each != "weighted"])
    table = data(streamed, rng.randint(1000, 5000), rng.randint(1, 99), router, **engine)
    if rng.random() < 0.5:
        del table["workload"]["arrival"]
        pause = rng.choice(PAUSES)
        table["workload"]["load"] = {
            "mode": "concurrency", "concurrency": rng.choice((1, 7, 40, 300, 9000)), "think_time_s": pause,
            "think_time_from": rng.choice(("end", "arrival", "arrival_mean") if pause else ("end",)),
            "ramp_up_s": rng.choice((0.0, 3.0)), "client_delay_s": rng.choice((0.0, 0.001))}
    if rng.random() < 0.6:
        table["workload"]["system_prompts"] = {
            "num_tokens": rng.choice((15, 16, 100)), "num_prompts": rng.choice((1, 9, 500)),
            **rng.choice(({"share": 0.3, "popularity": "zipf"}, {}, {"num_questions": 20}, {"num_questions": 999}))}
    if rng.random() < 0.4:
        table["workload"]["duration_s"] = rng.uniform(3.0, 20.0)
    if rng.random() < 0.4:
        table["horizon_s"] = rng.uniform(3.0, 20.0)
    if rng.random() < 0.5:
        table["latency"]["host"] = LATE
    table["topology"] = {"replicas": rng.choice((1, 2, 5)), "pipeline_parallel": rng.choice((1, 1, 2))}
    return table


@pytest.mark.parametrize("seed", range(24))
def test_features_that_meet_have_the_numbers_of_an_ordinary_run(seed):
    ordinary, streamed = (
        simulator.run(read(drawn(random.Random(seed), each))).summary for each in (False, True))
    assert not list(differences(ordinary, streamed))
    assert [note for note in streamed["diagnosis"] if "percentiles are" not in note] == ordinary["diagnosis"]
