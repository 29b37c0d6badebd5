"""Questions of `plan` as whole processes: CPU time on one core, of which two cores need half."""
import re
import subprocess
import sys
from statistics import median

import pytest
from test_process import ENVIRONMENT

ROUNDS, TARGET_S, CORES = 3, 10.0, 2
REQUESTS = ("--input", "3000", "--output", "400", "--ttft-p99", "2000", "--tpot-p99", "40")
QUESTIONS = {
    "8 GPUs": ("llama-3.1-8b", "--gpu", "h100", "--gpus", "8"),
    "64 GPUs": ("llama-3.1-8b", "--gpu", "h100", "--gpus", "64"),
    "64 GPUs, 200 requests/s": ("llama-3.1-8b", "--gpu", "h100", "--gpus", "64", "--rate", "200"),
    "64 GPUs, a mixture": ("deepseek-v3", "--gpu", "h200", "--gpus", "64"),
}
# One process: the CPU time of worker processes is not counted with that of their parent.
ASK = """
import resource, sys
from simulator import cli
from simulator.study import plan_command
plan_command.usable_cores = lambda: 1
status = cli.main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"seconds {used.ru_utime + used.ru_stime}")
sys.exit(status)
"""


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.benchmark(group="plan")
def test_a_question_is_answered(benchmark, report, tmp_path, question):
    seconds, answers = [], []

    def ask():
        command = [sys.executable, "-c", ASK, "plan", *QUESTIONS[question], *REQUESTS]
        ran = subprocess.run([*command, "--out", str(tmp_path / str(len(seconds)))], check=True, capture_output=True,
                             text=True, env=ENVIRONMENT)
        seconds.append(float(re.search(r"^seconds (.*)$", ran.stdout, re.MULTILINE)[1]))
        answers.append(re.search(r"^(?:largest|fewest) .*$", ran.stdout, re.MULTILINE)[0])

    benchmark.pedantic(ask, rounds=ROUNDS)
    report.add(f"plan, {question}", f"{median(seconds):.1f} s of CPU", f"{CORES * TARGET_S:g} s", answers[0])

    assert len(set(answers)) == 1
