"""Truths made by the simulator, and the metrics and logs that an operator would have of them."""
import csv
import io
import json
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from simulator.api import Order, run_ordered
from simulator.live.metrics import FIRST_TOKEN_S, REQUEST_S, token_bounds
from simulator.study.compare import metrics_of
from simulator.study.measured.source import Source
from simulator.study.reconstruct import access_log as logs
from simulator.study.reconstruct.estimate import Question, answer_of
from simulator.study.reconstruct.replay import experiment_of, site_of, write_draw
from simulator.study.server_metrics.files import read
from simulator.study.server_metrics.instances import instances_of
from simulator.study.what_if import AS_IT_WAS, errors_of, intervals

EPOCH_S = 1.8e9
STEP_S = 15.0
MODEL_LEN = 8192
ENGINE = {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "max_model_len": MODEL_LEN, "num_gpu_blocks": 6000}
LATENCY = {"backend": "linear", "base_us": 25_000.0, "per_sequence_us": 200.0, "per_prefill_token_us": 150.0,
           "per_context_token_us": 0.1}
# Questions an operator has; each is a variant of `compare`.
CHANGES = [{"name": "two_more", "topology": {"replicas": 4}},
           {"name": "router", "cluster": {"routing": {"policy": "least_loaded"}}},
           {"name": "chunks", "engine": {"max_num_batched_tokens": 512}},
           {"name": "batch", "engine": {"max_num_seqs": 24}}]
# Metrics that are compared; counts and the end of a run depend on the last window.
COMPARED = ("request_throughput", "output_throughput", *(
    f"{key}.{statistic}" for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
    for statistic in ("mean", "p50", "p99")))


class Truth(NamedTuple):
    """A hidden truth: its experiment table, and faults of its measurement.

    lags_s : whole seconds by which the values of each instance are older than their times. missing : scrapes that
    failed. skew_s : by which the log's clock is ahead. digits : of the log's times.
    """

    table: dict
    lags_s: list[int]
    missing: set[int]
    skew_s: float
    digits: int


def drawn_truth(seed: int, scrapes: int = 40, has_restart: bool | None = None) -> Truth:
    """Return a truth of two replicas at a load from 0.5 to 0.95 of their capacity."""
    generator = np.random.default_rng([seed, 77])
    prompt, output = generator.uniform(150, 900), generator.uniform(60, 300)
    per_request_s = prompt * 150e-6 + output * (25e-3 / 48 + 200e-6)
    rate = 2 * generator.uniform(0.5, 0.95) / per_request_s
    burstiness = float(np.exp(generator.uniform(np.log(0.7), np.log(2.5))))
    workload = {"type": "synthetic", "duration_s": STEP_S * (scrapes - 1),
                "arrival": {"process": "gamma", "rate_per_s": float(rate), "cv": burstiness},
                "prompt_tokens": lengths(generator, prompt), "output_tokens": lengths(generator, output)}
    if generator.random() < 0.5:
        workload["system_prompts"] = {
            "share": float(generator.uniform(0.5, 1.0)), "num_tokens": int(generator.uniform(100, 600)),
            "num_prompts": int(generator.integers(1, 20))}
    table = {"name": "truth", "seed": seed, "engine": ENGINE, "latency": LATENCY, "workload": workload,
             "topology": {"replicas": 2}}
    span_s = STEP_S * (scrapes - 1)
    if has_restart if has_restart is not None else generator.random() < 0.5:
        table["failures"] = [{"kind": "stop", "which": 0, "at_s": float(span_s * generator.uniform(0.3, 0.6)),
                              "duration_s": float(generator.uniform(20, 60))}]
    gap = int(generator.integers(2, scrapes - 4))
    return Truth(table, generator.integers(0, 15, 2).tolist(), set(range(gap, gap + int(generator.integers(0, 4)))),
                 float(generator.uniform(-90, 90)), int(generator.choice([0, 3, 6])))


def lengths(generator, mean):
    """Return a distribution of lengths."""
    return {"distribution": "lognormal", "mean": float(mean), "cv": float(generator.uniform(0.3, 1.2)), "min": 2,
            "max": MODEL_LEN // 2 - 700}


def run_truth(truth: Truth):
    """Return the result of a truth, sampled each second."""
    table = truth.table | {"output": {"replica_samples_s": 1.0, "iterations": False}}
    return run_ordered(Order(experiment_of(table, Path()), None, False, True))


def answers(truth: Truth, changes: list[dict]) -> dict[str, dict]:
    """Return variant -> metrics of the truth under it."""
    found = {}
    for change in changes:
        table = truth.table | {key: truth.table.get(key, {}) | value if isinstance(value, dict) else value
                               for key, value in change.items()}
        found[change["name"]] = metrics_of(run_ordered(Order(experiment_of(table, Path()), None, False, True)).summary)
    return found


def prometheus(truth: Truth, result) -> str:
    """Return the answers to range queries of the metrics of a run."""
    times_s = np.arange(round(truth.table["workload"]["duration_s"] / STEP_S) + 1) * STEP_S
    found = []
    for replica, lag_s in enumerate(truth.lags_s):
        seen_s = times_s + max(truth.lags_s) - lag_s
        away = [(each["at_s"], each["at_s"] + each["duration_s"]) for each in truth.table.get("failures", ())
                if each["which"] == replica]
        kept = np.array([i not in truth.missing and not any(a <= t < b for a, b in away)
                         for i, t in enumerate(seen_s)])
        since_s = np.array([max([b for _, b in away if b <= t], default=-1.0) for t in seen_s])
        found += instance(result, replica, (times_s[kept], seen_s[kept], since_s[kept]))
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}})


def counted(clocks, events_ns, weights=None):
    """Return the sum of weights of events since the start, at each scrape."""
    _, seen_s, since_s = clocks
    weights = np.ones(len(events_ns)) if weights is None else np.asarray(weights, float)
    order = np.argsort(events_ns, kind="stable")
    total = np.r_[0.0, np.cumsum(weights[order])]
    upto, before = (total[np.searchsorted(events_ns[order], each * 1e9)] for each in (seen_s, since_s))
    return upto - np.where(since_s >= 0, before, 0.0)


def instance(result, replica, clocks) -> list[dict]:
    """Return the series of a replica."""
    times_s, seen_s, _ = clocks
    rows = result.requests[result.requests["replica"] == replica]
    samples = result.replica_samples[result.replica_samples["replica"] == replica]
    done, first = rows[rows["completed_ns"] >= 0], rows[rows["first_token_ns"] >= 0]
    series = []

    def add(name, values, **labels):
        labels = {"__name__": f"vllm:{name}", "instance": f"10.0.0.{replica}:8000", "model_name": "m", **labels}
        series.append({"metric": labels, "values": [[EPOCH_S + time, repr(float(value))] for time, value in zip(
            times_s.tolist(), np.asarray(values).tolist(), strict=True)]})

    count = partial(counted, clocks)

    def histogram(name, events_ns, values, bounds):
        for bound in (*bounds, np.inf):
            add(f"{name}_bucket", count(events_ns, values <= bound), le="+Inf" if bound == np.inf else str(bound))
        add(f"{name}_sum", count(events_ns, values))
        add(f"{name}_count", count(events_ns))

    place = np.minimum(np.searchsorted(samples["time_ns"], seen_s * 1e9), len(samples) - 1)
    after = seen_s * 1e9 > samples["time_ns"][-1]
    for kind in ("running", "waiting"):
        add(f"num_requests_{kind}", np.where(after, 0, samples[kind][place]))
    add("kv_cache_usage_perc", samples["used_blocks"][place] / result.replicas["num_blocks"][0])
    add("request_success_total", count(done["completed_ns"]), finished_reason="length")
    add("prompt_tokens_total", count(first["first_token_ns"], first["prompt_tokens"]))
    add("generation_tokens_total", count(done["completed_ns"], done["output_tokens"]))
    add("prefix_cache_queries_total", count(first["first_token_ns"], first["prompt_tokens"]))
    add("prefix_cache_hits_total", count(first["first_token_ns"], first["cached_tokens"]))
    histogram("time_to_first_token_seconds", first["first_token_ns"],
              (first["first_token_ns"] - first["arrival_ns"]) / 1e9, FIRST_TOKEN_S)
    decode_s = (done["completed_ns"] - done["first_token_ns"]) / 1e9
    add("inter_token_latency_seconds_sum", count(done["completed_ns"], decode_s))
    add("inter_token_latency_seconds_count", count(done["completed_ns"], done["output_tokens"] - 1))
    histogram("e2e_request_latency_seconds", done["completed_ns"], (done["completed_ns"] - done["arrival_ns"]) / 1e9,
              REQUEST_S)
    for name, column in (("prompt", "prompt_tokens"), ("generation", "output_tokens")):
        histogram(f"request_{name}_tokens", done["completed_ns"], done[column], token_bounds(MODEL_LEN))
    return series


def access_log(truth: Truth, result) -> str:
    """Return the log of a gateway as CSV."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("timestamp", "prompt_tokens", "completion_tokens", "latency_s", "status"))
    for row in result.requests:
        time_s = EPOCH_S + row["arrival_ns"] / 1e9 + truth.skew_s
        floor = np.floor(time_s * 10**truth.digits) / 10**truth.digits
        rows.writerow((f"{floor:.{truth.digits}f}", row["prompt_tokens"], row["output_tokens"],
                       f"{(row['completed_ns'] - row['arrival_ns']) / 1e9:.6f}", 200))
    return text.getvalue()


def held(truth: Truth, has_log: bool, changes: list[dict], draws: int) -> tuple[Counter, Counter]:
    """Return by metric how many intervals hold the truth, and how many there are."""
    result, changes = run_truth(truth), [{"name": AS_IT_WAS}, *changes]
    with TemporaryDirectory() as name:
        folder, bases = Path(name), []
        (folder / "metrics.json").write_text(prometheus(truth, result))
        (folder / "log.csv").write_text(access_log(truth, result))
        log = logs.read(Source(str(folder / "log.csv"))) if has_log else None
        servers = experiment_of({key: value for key, value in truth.table.items() if key != "failures"}, folder)
        series = read(Source(str(folder / "metrics.json")))
        question = Question(site_of(servers), instances_of(series), log, draws, truth.table["seed"])
        answer = answer_of(question)
        for i, candidate in enumerate(answer.kept):
            bases.append(f"draw_{i}.toml")
            write_draw(question.site, candidate.draw, folder, (bases[-1], f"trace_{i}.csv"))
        found = intervals(changes, folder, bases, errors_of(answer.kept[0].rows, answer.facts.edge))
    holds, of_all = Counter(), Counter()
    for variant, metrics in answers(truth, changes).items():
        for key in COMPARED:
            interval = found[variant][key]
            holds[key] += interval.low <= metrics[key] <= interval.high
            of_all[key] += 1
    return holds, of_all
