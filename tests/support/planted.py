"""Hidden truths for `observe --compare`: runs of a scene with one change."""
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.study.server_check.changes import NOTHING, Change
from simulator.study.server_check.series import COUNTERS, GAUGES, LENGTHS, ServerSeries
from simulator.study.server_check.simulated import Subject, simulated

ROOT = Path(__file__).resolve().parents[2]
FIRST_S = 1_700_000_000.0
CHAT = ("workload.arrival.rate_per_s=10",)
BUSY = ("workload.arrival.rate_per_s=24", "engine.max_model_len=16384")
PREFIXES = ("workload.arrival.rate_per_s=16", "engine.max_model_len=16384")
LARGE = ('model.name="llama-3.1-70b"', "topology.tensor_parallel=4", "workload.arrival.rate_per_s=6",
         "engine.max_model_len=32768")
RANKS = ("topology.data_parallel=4", "workload.arrival.rate_per_s=40", "engine.max_model_len=16384")
SCENES = {"chat": Subject(str(ROOT / "configs/quickstart.toml"), CHAT),
          "busy": Subject(str(ROOT / "configs/quickstart.toml"), BUSY),
          "prefixes": Subject(str(ROOT / "configs/shared_prompts.toml"), PREFIXES),
          "70b": Subject(str(ROOT / "configs/quickstart.toml"), LARGE),
          "ranks": Subject(str(ROOT / "configs/quickstart.toml"), RANKS)}
PLANTS = {
    "eager": [Change("", {"engine.cuda_graphs.mode": "none"})],
    "card": [Change("", {"hardware.name": name}) for name in ("h100-pcie-80gb", "h200-sxm-141gb", "a100-sxm-80gb",
                                                               "h100-nvl-94gb", "h20-96gb")],
    "slowed": [Change("", pace=pace) for pace in (1.45, 1.6, 1.9)],
    "weights": [Change("", {"model.dtype": name}) for name in ("fp8", "awq")],
    "kv_format": [Change("", {"model.kv_cache_dtype": "fp8"})],
    "memory_share": [Change("", {"engine.gpu_memory_utilization": share}) for share in (0.8, 0.7, 0.75)],
    "max_num_seqs": [Change("", {"engine.max_num_seqs": count}) for count in (8, 12, 16)],
    "max_num_batched_tokens": [Change("", {"engine.max_num_batched_tokens": count}) for count in (256, 512, 1024)],
    "max_model_len": [Change("", {"engine.max_model_len": length}) for length in (2048, 4096, 8192)],
    "prefix_caching": [Change("", {"engine.enable_prefix_caching": False})],
    "ranks": [Change("", {"topology.tensor_parallel": count}) for count in (2, 8)],
    "client": [Change("", {"workload.arrival.rate_per_s": rate}) for rate in (3.0, 5.0)],
    "lengths": [Change("", answers=1.5), Change("", answers=0.6)]}
ONLY = {"prefix_caching": ("prefixes",)}                # where prompts share nothing there is nothing to see


class Case(NamedTuple):
    """One hidden truth: the cause is "" where nothing was changed."""

    scene: str
    cause: str
    change: Change
    seed: int


def drawn(rng: np.random.Generator, cause: str) -> Case:
    """Draw a truth of a cause."""
    scene = str(rng.choice(ONLY.get(cause, tuple(SCENES))))
    changes = PLANTS.get(cause, [NOTHING])
    change = changes[rng.integers(len(changes))]
    if cause == "ranks":
        key, value = ("topology.data_parallel", 2) if scene == "ranks" else ("topology.tensor_parallel", 2)
        value = int(rng.choice([2, 8])) if scene == "70b" else value
        change = Change("", {key: value})
    return Case(scene, cause, change, int(rng.integers(1000, 2**31)))


def truth(case: Case, minutes: float = 1.0, every_s: float = 5.0) -> ServerSeries:
    """Return the series of a hidden truth, with late readings and noise."""
    rng = np.random.default_rng(case.seed)
    times_s = np.arange(0.0, minutes * 60 + 1e-9, every_s)
    times_s[1:] += rng.uniform(0, 0.2, len(times_s) - 1)
    pace = float(np.exp(rng.normal(0, 0.04)))
    made = simulated(SCENES[case.scene], case.change, case.seed, pace, times_s, None).series
    values = dict(made.values)
    for name in ("ttft_s", "gap_s", "queue_s"):
        values[name] = values[name] * np.exp(rng.normal(0, 0.02))
    for name in GAUGES:
        values[name] = values[name] * np.exp(rng.normal(0, 0.02, len(times_s)))
    facts = made.facts._replace(kv_tokens=made.facts.kv_tokens * float(np.exp(rng.normal(0, 0.01))))
    return made._replace(values=values, facts=facts)


def range_answer(series: ServerSeries) -> dict:
    """Return a series as the answer of a range query."""
    times = [FIRST_S + time_s for time_s in series.times_s.tolist()]

    def result(metric: str, values, labels: dict) -> dict:
        return {"metric": {"__name__": f"vllm:{metric}", "instance": "a:8000", **labels},
                "values": [[time_s, repr(value)] for time_s, value in zip(times, values, strict=True)]}

    facts, engines, found = series.facts, int(series.facts.engines), []
    for engine in range(engines):
        labels = {"engine": str(engine)}
        for name, metric in (*GAUGES.items(), *COUNTERS.items()):
            part = 1 if name == "kv_usage" else engines
            found.append(result(metric, (series.values[name] / part).tolist(), labels))
        found.append(result("cache_config_info", [1.0] * len(times), labels | {
            "block_size": "16", "num_gpu_blocks": str(round(facts.kv_tokens / 16)),
            "enable_prefix_caching": str(bool(facts.prefix_caching))}))
        found.append(result(LENGTHS, [0.0] * len(times), labels | {"le": repr(facts.longest_bound)}))
    return {"status": "success", "data": {"resultType": "matrix", "result": found}}
