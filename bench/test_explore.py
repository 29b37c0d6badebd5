"""The page of `explore`: from start to its first answer, and one update, 10,000 requests on one replica."""
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from test_process import ENVIRONMENT

QUICKSTART = Path(__file__).parents[1] / "configs/quickstart.toml"
UPDATES, FIRST_S, UPDATE_S = 20, 1.0, 0.3
# Without sockets: the questions that the page sends, answered in one process.
ASK = """
import sys, time
from simulator.study import explore_command
from simulator.study.exploring.answering import Source, plain_array
from simulator.study.exploring.desk import Desk
import msgspec
text = open(sys.argv[1]).read().replace("num_requests = 3000", "num_requests = 10000")
desk = Desk(Source(text, sys.argv[1]))
def ask(turn, **values):
    found = desk.answer({"page": "p", "turn": turn, "text": text, "values": values})
    return found["answer"], msgspec.json.encode(found, enc_hook=plain_array)
ask(0)
print("first", time.process_time())
for turn in range(1, int(sys.argv[2]) + 1):
    began_s = time.process_time()
    ask(turn, rate=5.0 + turn)
    print("update", time.process_time() - began_s)
"""


@pytest.mark.benchmark(group="explore")
def test_answers_follow_a_control(benchmark, report):
    seconds = {"first": [], "update": []}

    def ask():
        printed = subprocess.run([sys.executable, "-c", ASK, str(QUICKSTART), str(UPDATES)], check=True,
                                 capture_output=True, text=True, env=ENVIRONMENT).stdout
        for name, spent_s in re.findall(r"^(first|update) (.*)$", printed, re.MULTILINE):
            seconds[name].append(float(spent_s))

    benchmark.pedantic(ask, rounds=3)
    report.add("explore, first answer", f"{median(seconds['first']):.2f} s of CPU", f"{FIRST_S:g} s")
    report.add("explore, an update", f"{median(seconds['update']):.2f} s of CPU", f"{UPDATE_S:g} s")

    assert len(seconds["update"]) == 3 * UPDATES
