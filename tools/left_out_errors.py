"""Print the errors of simulator/latency/uncertainty/left_out.py, and how many points left out they hold.

    python tools/left_out_errors.py POINTS.csv ...

POINTS.csv: of `python -m simulator score --out DIR`, for data sets with the predictor `operators`.
"""
import csv
import math
import sys
from collections import defaultdict

INTERVAL, NUM_SHARES = 0.8, 20
METRICS = ("tpot", "ttft")


def main(paths: list[str]) -> None:
    """Print the quantiles and the coverage of each metric."""
    errors = defaultdict(lambda: defaultdict(list))
    for path in paths:
        with open(path, encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                if row["backend"] == "operators" and row["metric"] in METRICS:
                    errors[row["metric"]][row["data_set"]].append(
                        math.log(float(row["measured"]) / float(row["predicted"])))
    for metric, by_set in errors.items():
        print(metric, len(by_set), "deployments,", sum(map(len, by_set.values())), "points")
        print(" ", [round(quantile(by_set.values(), share / NUM_SHARES), 3) for share in range(NUM_SHARES + 1)])
        held = {name: covered(name, by_set) for name in by_set}
        points = sum(share * len(by_set[name]) for name, share in held.items()) / sum(map(len, by_set.values()))
        print(f"  held: {points:.0%} of points, {sum(held.values()) / len(held):.0%} on average by deployment")
        for name, share in held.items():
            print(f"    {share:4.0%} {name}")


def covered(name: str, by_set: dict[str, list[float]]) -> float:
    """Return the share of a deployment's points inside the interval of the others."""
    others = [found for other, found in by_set.items() if other != name]
    low, high = (quantile(others, 0.5 + side * INTERVAL / 2) for side in (-1, 1))
    return sum(low <= each <= high for each in by_set[name]) / len(by_set[name])


def quantile(groups, share: float) -> float:
    """Return a quantile of numbers in groups of equal weight."""
    groups = list(groups)
    weighted = sorted((each, 1.0 / len(group)) for group in groups for each in group)
    total = 0.0
    for each, weight in weighted:
        total += weight
        if total >= share * len(groups) - 1e-9:
            return each
    return weighted[-1][0]


if __name__ == "__main__":
    main(sys.argv[1:])
