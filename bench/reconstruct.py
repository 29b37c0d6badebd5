"""How often the intervals of `reconstruct` hold hidden truths that the simulator made, with and without a log.

    python bench/reconstruct.py [TRUTHS]
"""
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))     # for `support`

from support.hidden_truths import CHANGES, COMPARED, drawn_truth, held

DRAWS = 8
FIRST = 1000                    # seed; lower ones were looked at while the method was made


def campaign(truths: int) -> None:
    """Print for each metric the share of intervals that hold the truth, and the worst truths."""
    totals = {}
    for has_log in (False, True):
        holds, of_all, shares = Counter(), Counter(), []
        for seed in range(FIRST, FIRST + truths):
            found, tried = held(drawn_truth(seed), has_log, CHANGES, DRAWS)
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
    campaign(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
