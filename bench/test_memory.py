"""Peak memory of whole processes; SIM_BENCH_LARGE=1 adds more requests and replicas."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

import simulator
from simulator.results.load import load_results

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(simulator.__file__).parents[1])}
# getrusage counts the memory of a process before exec, a copy of its parent's: so its parent is a small process.
BETWEEN = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
PEAK = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
pytestmark = pytest.mark.benchmark(group="memory")


def experiment(num_requests):
    """Return drawn requests to 64 replicas that are never short of blocks; only /requests is written."""
    return {
        "name": "large", "engine": {"num_gpu_blocks": 200_000, "max_model_len": 16_384},
        "topology": {"replicas": 64}, "latency": {"backend": "linear"}, "output": {"iterations": False},
        "workload": {
            "type": "synthetic", "num_requests": num_requests, "arrival": {"process": "poisson", "rate_per_s": 1600.0},
            "prompt_tokens": {"distribution": "lognormal", "mean": 660.0, "std": 820.0, "min": 1, "max": 8192},
            "output_tokens": {"distribution": "lognormal", "mean": 240.0, "std": 280.0, "min": 1, "max": 2048}}}


def provenance_of_run(large, folder):
    path = folder / "large.toml"
    path.write_text(tomli_w.dumps(large), encoding="utf-8")
    command = [sys.executable, "-m", "simulator", path, "--out", folder / "out", "--quiet", "--overwrite"]
    subprocess.run([sys.executable, "-c", BETWEEN, *command], check=True, env=ENVIRONMENT)
    return json.loads((folder / "out" / "provenance.json").read_text(encoding="utf-8"))


def test_memory_of_a_million_requests(benchmark, report, tmp_path):
    small = provenance_of_run(experiment(100_000), tmp_path)["peak_memory_bytes"]

    large = benchmark.pedantic(provenance_of_run, (experiment(1_000_000), tmp_path))["peak_memory_bytes"]

    per_request = (large - small) / 900_000
    report.add("memory of a request", f"{per_request:.0f} bytes", "<= 250 bytes",
               f"peak of the process: {large / 1e6:.0f} MB with 1M requests, {small / 1e6:.0f} MB with 100k")


@pytest.mark.skipif(os.environ.get("SIM_BENCH_LARGE") != "1", reason="SIM_BENCH_LARGE=1 runs ten million requests")
def test_memory_of_ten_million_requests(benchmark, report, tmp_path):
    found = benchmark.pedantic(provenance_of_run, (experiment(10_000_000), tmp_path))

    timings = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in found["timings_s"].items())
    report.add("10M requests", f"{found['peak_memory_bytes'] / 1e9:.2f} GB", "< 4 GB", timings)


def streamed(num_requests):
    """Return the same requests, each given up when it has ended."""
    return experiment(num_requests) | {"output": {"iterations": False, "requests": False, "streamed": True}}


def test_memory_of_requests_given_up_when_they_end(benchmark, report, tmp_path):
    large = int(os.environ.get("SIM_BENCH_STREAMED", 1_000_000))        # 10**8: 219 s of one core
    ordinary = provenance_of_run(experiment(1_000_000) | {"output": {"iterations": False, "requests": False}}, tmp_path)
    fewer = provenance_of_run(streamed(300_000), tmp_path)["peak_memory_bytes"]

    found = benchmark.pedantic(provenance_of_run, (streamed(large), tmp_path))

    peak = found["peak_memory_bytes"]
    ns, plain_ns = (1e9 * sum(each["timings_s"].values()) / count for each, count in ((found, large), (
        ordinary, 1_000_000)))
    report.add("streamed: memory of a further request", f"{(peak - fewer) / (large - 300_000):.1f} bytes", "0",
               f"peak {peak / 1e6:.0f} MB with {large:,} requests, {fewer / 1e6:.0f} MB with 300,000; "
               f"{ordinary['peak_memory_bytes'] / 1e6:.0f} MB not streamed with 1M")
    report.add("streamed: a request", f"{ns:.0f} ns", "",
               f"{ns / plain_ns:.2f} x not streamed, {plain_ns:.0f} ns: whole processes in real time; the other run "
               "has a thread for each core")


@pytest.mark.parametrize("num_requests", [1_000_000, 5_000_000])
def test_memory_of_a_report(num_requests, benchmark, report, tmp_path):
    """As users have it: /requests and /iterations, which are the default; `export --as csv` of the same."""
    pytest.importorskip("matplotlib", reason="pictures are in the report extra")
    if num_requests > 1_000_000 and os.environ.get("SIM_BENCH_LARGE") != "1":
        pytest.skip("SIM_BENCH_LARGE=1 runs five million requests")
    provenance_of_run(experiment(num_requests) | {"output": {}}, tmp_path)

    page = benchmark.pedantic(peak_of, (["report", tmp_path / "out"],), rounds=1)
    tables = peak_of(["export", tmp_path / "out", "--as", "csv", "--out", tmp_path / "csv"])

    rows = len(load_results(tmp_path / "out").columns("iterations", ["stage"])["stage"])
    report.add(f"report of {num_requests:,} requests", f"{page / 1e6:.0f} MB", "<= 1 GB",
               f"{rows:,} iterations; `export --as csv`: {tables / 1e6:.0f} MB")


def peak_of(command):
    """Return the peak memory of a command, bytes."""
    called = [sys.executable, "-c", PEAK, sys.executable, "-m", "simulator", *command, "--quiet"]
    found = subprocess.run(called, check=True, env=ENVIRONMENT, capture_output=True, text=True)
    return int(found.stdout) * (1024 if sys.platform == "linux" else 1)


def crowd(replicas, requests):
    """Return requests with shared prompts to replicas of 28,000 blocks, a minute's worth for any number of replicas."""
    return {
        **experiment(requests), "topology": {"replicas": replicas},
        "engine": {"num_gpu_blocks": 28_000, "max_model_len": 16_384},
        "workload": {
            **experiment(requests)["workload"], "arrival": {"process": "poisson", "rate_per_s": requests / 60.0},
            "system_prompts": {"share": 0.9, "num_tokens": 512, "num_prompts": 8}}}


@pytest.mark.parametrize(("replicas", "requests_each", "target"), [
    (1_000, 0, ""), (1_000, 10, ""), (10_000, 0, "< 1 GB"), (10_000, 10, "< 1 GB"), (100_000, 0, "< 8 GB"),
    (100_000, 10, "< 8 GB")])
def test_memory_of_replicas(replicas, requests_each, target, benchmark, report, tmp_path):
    if replicas > 10_000 and os.environ.get("SIM_BENCH_LARGE") != "1":
        pytest.skip("SIM_BENCH_LARGE=1 runs a hundred thousand replicas")

    found = benchmark.pedantic(
        provenance_of_run, (crowd(replicas, max(requests_each * replicas, 10)), tmp_path), rounds=1)

    timings = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in found["timings_s"].items())
    report.add(f"{replicas:,} replicas, {requests_each or 'hardly any'} requests each",
               f"{found['peak_memory_bytes'] / 1e9:.3f} GB", target, timings)
