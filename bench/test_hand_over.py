"""Disaggregated prefill, against replicas that serve whole requests."""
import shutil
import time
from statistics import median

import pytest
from cases import Prepared
from instructions import APART, count_loop
from pairs import repeated_cpu_s
from test_memory import experiment, provenance_of_run

ROUNDS = 5
KV = {"kv_bytes_per_token": 131_072.0}      # Llama-3.1-8B
TIERS = {"kv_tiers": KV | {"cpu_gib": 16.0, "d2h_gb_per_s": 50.0, "h2d_gb_per_s": 50.0}}
pytestmark = pytest.mark.benchmark(group="hand-over", timer=time.process_time)


@pytest.mark.parametrize("name", APART, scope="class")
class TestApart:
    def test_against_whole_requests(self, name, benchmark, report):
        apart, whole = (Prepared(case) for case in APART[name])
        rounds = []

        benchmark.pedantic(lambda: rounds.append([repeated_cpu_s(apart), repeated_cpu_s(whole)]), rounds=ROUNDS)

        apart_s, whole_s = (median(times) for times in zip(*rounds, strict=True))
        us = 1e6 / apart.case.num_requests
        assert apart.means_ms()[0] > whole.means_ms()[0] > 0        # all completed, and KV took its time
        report.add(name, f"{apart_s / whole_s:.2f} x", "<= 2 x",
                   f"whole requests; us a request: {apart_s * us:.2f}, {whole_s * us:.2f}; iterations: "
                   f"{apart.total('iterations'):,}, {whole.total('iterations'):,}")

    @pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
    def test_instructions(self, name, benchmark, report, tmp_path):
        (_, apart), (_, whole) = benchmark.pedantic(
            lambda: [count_loop(each, tmp_path) for each in (name, f"{name}, whole")], rounds=1)

        case = APART[name][0]
        report.add(name, f"{apart / whole:.2f} x the instructions", "",
                   f"{apart / case.num_requests:,.0f} and {whole / case.num_requests:,.0f} a request")


@pytest.mark.parametrize("tiers", [{}, TIERS], ids=["no tiers", "host tiers"])
def test_a_million_requests(tiers, benchmark, report, tmp_path):
    large = experiment(1_000_000) | tiers | {
        "pools": [{"name": role, "role": role, "replicas": 32} for role in ("prefill", "decode")],
        "kv_transfer": KV | {"bandwidth_gb_per_s": 37.5}, "cluster": {"routing": {"policy": "least_loaded"}}}
    large["engine"] |= {"num_gpu_blocks": 28_000}       # Llama-3.1-8B on an H100

    found = benchmark.pedantic(provenance_of_run, (large, tmp_path))

    report.add(f"1M requests on 32 + 32 replicas, {'host' if tiers else 'no'} tiers, whole process",
               f"{found['peak_memory_bytes'] / 1e9:.2f} GB", "< 20 s, < 1 GB",
               ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in found["timings_s"].items()))
