"""Print the errors of simulator/latency/uncertainty/left_out.py, and how many points left out they hold.

    python tools/left_out_errors.py POINTS.csv ...

POINTS.csv: of `python -m simulator score --out DIR`. Data sets with split pools (`...-split`) are passed over: vLLM's
scheduler replaces other engines' there.
"""
import csv
import math
import sys
from collections import defaultdict

NUM_SHARES = 20
BACKENDS = ("operators", "roofline")
METRICS = {"tpot": "TPOT", "ttft": "TTFT"}
INTERVALS = (0.5, 0.8)                      # two-sided
CONFIDENCES = (0.5, 0.8, 0.9, 0.95)         # one-sided


def main(paths: list[str]) -> None:
    """Print the table LEFT_OUT, and the coverage of each backend and metric."""
    errors = read(paths)
    for backend in BACKENDS:
        print(f'    "{backend}": {{')
        for metric, name in METRICS.items():
            by_set = errors[backend, metric]
            logarithms = [round(quantile(by_set.values(), share / NUM_SHARES), 3) for share in range(NUM_SHARES + 1)]
            print(f"        {name}: Errors({tuple(sorted(by_set))}, {sum(map(len, by_set.values()))},")
            print(f"                     {tuple(logarithms)}),")
        print("    },")
    for (backend, metric), by_set in errors.items():
        print(backend, metric, len(by_set), "deployments,", sum(map(len, by_set.values())), "points")
        for share in INTERVALS:
            report(f"interval {share:.0%}", by_set, 0.5 - share / 2, 0.5 + share / 2)
        for share in CONFIDENCES:
            report(f"one-sided {share:.0%}", by_set, None, share)


def read(paths: list[str]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Return ln(measured / predicted) by backend and metric, and by data set."""
    errors = {(backend, metric): defaultdict(list) for backend in BACKENDS for metric in METRICS}
    for path in paths:
        with open(path, encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                key = row["backend"], row["metric"]
                if key in errors and not row["data_set"].endswith("-split"):
                    errors[key][row["data_set"]].append(math.log(float(row["measured"]) / float(row["predicted"])))
    return errors


def report(label: str, by_set: dict[str, list[float]], low: float | None, high: float) -> None:
    """Print the share of points that the quantiles of the other deployments hold, in all and by deployment."""
    held = {name: covered(name, by_set, low, high) for name in by_set}
    points = sum(share * len(by_set[name]) for name, share in held.items()) / sum(map(len, by_set.values()))
    worst = min(held, key=held.get)
    print(f"  {label}: {points:.0%} of points, {sum(held.values()) / len(held):.0%} on average by deployment, "
          f"{held[worst]:.0%} of {worst}")


def covered(name: str, by_set: dict[str, list[float]], low: float | None, high: float) -> float:
    """Return the share of a deployment's points between two quantiles of the others; low None: below the upper."""
    others = [found for other, found in by_set.items() if other != name]
    least = -math.inf if low is None else quantile(others, low)
    return sum(least <= each <= quantile(others, high) for each in by_set[name]) / len(by_set[name])


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
