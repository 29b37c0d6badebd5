"""Planted causes: how often `observe --compare` names the right one in three.

`python bench/server_check.py [--cases 112] [--seed 1]` prints a line for each hidden truth, and the rates. A truth is a
run of a scene with one change, another seed, prices off by 4 % (standard deviation), a KV cache off by 1 %, gauges and
sums of durations off by 2 %; it is read from the answer of a range query. The check sees the scene without the change.
"""
import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from simulator.study.server_check.check import Answer, check
from simulator.study.server_check.reading import read_series
from support.planted import PLANTS, SCENES, Case, drawn, range_answer, truth


def answer_of(case: Case) -> Answer:
    """Return the check of a hidden truth, by a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "prom.json")
        path.write_text(json.dumps(range_answer(truth(case))), encoding="utf-8")
        return check(SCENES[case.scene], read_series([path]))


def main() -> None:
    """Print a line for each case, and the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=112)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    causes, places, wrong = [*PLANTS, ""], Counter(), Counter()
    counts = Counter()
    for number in range(options.cases):
        case = drawn(rng, causes[number % len(causes)])
        answer = answer_of(case)
        names = [each.cause.name for each in answer.ranked]
        counts[case.cause] += 1
        if case.cause:
            place = names.index(case.cause) + 1 if case.cause in names else 99
            places[case.cause] += place <= 3
            wrong[case.cause] += answer.is_right
        else:
            place, wrong[""] = 0, wrong[""] + (not answer.is_right)
        print(case.scene, case.cause or "nothing", dict(case.change.keys), f"place {place}", answer.is_right,
              [(each.cause.name, each.change.text, round(each.gain, 1)) for each in answer.ranked[:3]], flush=True)
    for cause in causes:
        print(cause or "nothing", f"{places[cause]} of {counts[cause]}", f"overlooked {wrong[cause]}")
    total = sum(counts[cause] for cause in PLANTS)
    print(f"first three: {sum(places.values())} of {total}")


if __name__ == "__main__":
    main()
