"""Capacity questions as whole processes, from start to capacity.json: CPU time on one core."""
import json
import subprocess
import sys
from statistics import median

import pytest
from test_process import CONFIGS, ENVIRONMENT, children_s

ROUNDS, TARGET_S = 3, 2.0
BOUNDS = ("--slo", "ttft_ms.p99=500", "--slo", "tpot_ms.p99=50")
QUESTIONS = {
    "largest rate, up to 32 seeds": ("quickstart.toml", *BOUNDS),
    "largest rate, up to 12 seeds": ("quickstart.toml", *BOUNDS, "--set", "study.max_seeds=12"),
    "fewest replicas": ("capacity_replicas.toml",),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.benchmark(group="capacity")
def test_a_question_is_answered(benchmark, report, tmp_path, question):
    environment = ENVIRONMENT | {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    file, *options = QUESTIONS[question]
    spent_s, again_s = [], []

    def ask(number, seconds):
        before_s = children_s()
        command = [sys.executable, "-m", "simulator", "capacity", str(CONFIGS / file), *options, "--quiet"]
        subprocess.run([*command, "--out", str(tmp_path / str(number))], check=True, stdout=subprocess.DEVNULL,
                       env=environment)
        seconds.append(children_s() - before_s)

    ask("warm", [])
    benchmark.pedantic(lambda: ask(len(spent_s), spent_s), rounds=ROUNDS)
    ask(0, again_s)
    found = json.loads((tmp_path / "0" / "capacity.json").read_text())
    requests = sum(len(probe["seeds"]) * probe["requests"] for probe in found["probes"] + found["repeats"])
    report.add(f"capacity, {question}", f"{median(spent_s):.2f} s of CPU", f"{TARGET_S:g} s",
               f"{requests:,} requests in {len(found['probes'])} probes; asked again {again_s[0]:.2f} s")

    assert found["repeated_with_new_seeds"] and found["answer"] > 0
