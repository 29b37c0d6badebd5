"""How often the intervals of `reconstruct` hold hidden truths that the simulator made, with and without a log.

    python bench/reconstruct.py [TRUTHS]
    python bench/reconstruct.py example         # the data of configs/what_happened.toml
"""
import gzip
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))     # for `support`

from support.hidden_truths import (
    CHANGES,
    COMPARED,
    ENGINE,
    LATENCY,
    Truth,
    access_log,
    drawn_truth,
    held,
    prometheus,
    run_truth,
)

DRAWS, SCRAPES = 8, 32
FIRST = 1000                    # seed; lower ones were looked at while the method was made
EXAMPLE = Path(__file__).resolve().parents[1] / "configs/data/what_happened"


def example() -> None:
    """Write the metrics and the log of one truth with a restart."""
    workload = {"type": "synthetic", "duration_s": 195.0,
                "arrival": {"process": "gamma", "rate_per_s": 5.0, "cv": 1.5},
                "prompt_tokens": {"distribution": "lognormal", "mean": 500.0, "cv": 0.8, "min": 2, "max": 3000},
                "output_tokens": {"distribution": "lognormal", "mean": 160.0, "cv": 0.7, "min": 2, "max": 3000}}
    truth = Truth({"name": "truth", "seed": 3, "engine": ENGINE, "latency": LATENCY, "workload": workload,
                   "topology": {"replicas": 2},
                   "failures": [{"kind": "stop", "which": 0, "at_s": 85.0, "duration_s": 40.0}]}, [4, 11], {10}, 3.2, 3)
    result = run_truth(truth)
    for name, text in (("metrics.json.gz", prometheus(truth, result)), ("access.csv.gz", access_log(truth, result))):
        (EXAMPLE / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def campaign(truths: int) -> None:
    """Print for each metric the share of intervals that hold the truth, and the worst truths."""
    totals = {}
    for has_log in (False, True):
        holds, of_all, shares = Counter(), Counter(), []
        for seed in range(FIRST, FIRST + truths):
            found, tried = held(drawn_truth(seed, SCRAPES), has_log, CHANGES, DRAWS)
            holds, of_all = holds + found, of_all + tried
            shares.append((sum(found.values()) / sum(tried.values()), seed))
            print(f"log {has_log} seed {seed}: {shares[-1][0]:.2f}", file=sys.stderr, flush=True)
        totals[has_log] = {key: holds[key] / of_all[key] for key in COMPARED}
        print(f"{'with' if has_log else 'without'} log: {sum(holds.values()) / sum(of_all.values()):.1%} of "
              f"{sum(of_all.values()):,} intervals; worst truths {sorted(shares)[:3]}")
    print("| metric | metrics alone | and log |\n|---|---:|---:|")
    for key in COMPARED:
        print(f"| {key} | {totals[False][key]:.0%} | {totals[True][key]:.0%} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["example"]:
        example()
        sys.exit()
    campaign(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
