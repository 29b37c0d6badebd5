"""Whole processes, from start to written results: CPU time, and the shortest wall-clock time."""
import gzip
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest
import tomli_w
from traffic import chat

import simulator

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(simulator.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)        # some containers set it: each process compiles all modules anew
LEAST = ("-c", "import numpy, h5py, msgspec")           # imports of every run
IMPORTS = ("simulator.cli", "simulator.config.load", "simulator.api", "simulator.results.files",
           "simulator.workload.types.synthetic", "simulator.scheduling.vllm", "simulator.latency.linear",
           "simulator.routing.policies.round_robin")         # modules loaded by a run of configs/linear.toml
ROUNDS = 7
pytestmark = pytest.mark.benchmark(group="process")


@pytest.fixture
def measure(benchmark, tmp_path):
    """Return a function that runs Python with arguments; it returns the median CPU time in s and a text on the rest."""
    environment = ENVIRONMENT | {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}     # filled by the first round

    def spent_s(arguments):
        before_s = children_s()
        subprocess.run(
            [sys.executable, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, env=environment)
        return children_s() - before_s

    def measured(*arguments):
        cpu_s, least_s, wall_s = [], [], []

        def run():
            least_s.append(spent_s(LEAST))
            began_s = time.perf_counter()
            cpu_s.append(spent_s(arguments))
            wall_s.append(time.perf_counter() - began_s)

        benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
        ratio = median(cpu_s) / median(least_s)
        return median(cpu_s), f"{ratio:.2f} x `{LEAST[1]}`; wall clock from {min(wall_s):.2f} s"

    return measured


def children_s():
    """Return the CPU time of all finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timings(folder):
    """Return the timings of the last run in provenance.json, as a text."""
    return ", ".join(f"{phase} {1e3 * seconds:.0f} ms" for phase, seconds in provenance(folder)["timings_s"].items())


def peak_mb(folder):
    return f"{provenance(folder)['peak_memory_bytes'] / 1e6:.0f}"


def provenance(folder):
    return json.loads((folder / "provenance.json").read_text(encoding="utf-8"))


def test_imports(measure, report):
    cpu_s, wall = measure("-c", f"import {', '.join(IMPORTS)}")
    report.add("imports of a run", f"{cpu_s:.2f} s", "<= 0.2 s", f"{wall}; bare Python included")


def test_validate(measure, report):
    cpu_s, wall = measure("-m", "simulator", "validate", CONFIGS / "linear.toml")
    report.add("validate, 1,000 requests", f"{cpu_s:.2f} s", "", wall)


def test_small_experiment(measure, report, tmp_path):
    cpu_s, wall = measure(
        "-m", "simulator", CONFIGS / "linear.toml", "--out", tmp_path / "out", "--overwrite")
    report.add("run and write, 1,000 requests", f"{cpu_s:.2f} s, {peak_mb(tmp_path / 'out')} MB", "<= 0.25 s, 60 MB",
               f"{wall}; {timings(tmp_path / 'out')}")


def test_trace_like_azure_from_start_to_results(measure, report, tmp_path):
    write_azure(tmp_path / "trace.csv.gz", chat(20_000, 5.5))
    experiment = {
        "extends": str(CONFIGS / "azure_conv.toml"), "name": "like_azure", "workload": {"path": "trace.csv.gz"}}
    (tmp_path / "experiment.toml").write_text(tomli_w.dumps(experiment), encoding="utf-8")

    cpu_s, wall = measure(
        "-m", "simulator", tmp_path / "experiment.toml", "--out", tmp_path / "out", "--overwrite")

    report.add("azure-like trace, 20k requests, roofline", f"{cpu_s:.2f} s", "", f"{wall}; {timings(tmp_path / 'out')}")


def write_azure(path, traffic):
    """Write requests in the format of the Azure LLM inference trace of 2023."""
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens\n"]
    columns = (traffic.arrival_ns, traffic.prompt_tokens, traffic.output_tokens)
    for ns, prompt, output in zip(*(column.tolist() for column in columns), strict=True):
        minutes, seconds = divmod(ns // 10**9, 60)
        lines.append(f"2023-11-16 {18 + minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{ns % 10**9 // 100:07d},"
                     f"{prompt},{output}\n")
    path.write_bytes(gzip.compress("".join(lines).encode("ascii")))
