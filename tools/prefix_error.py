"""Errors of `roofline` on prompt chunks behind a cached prefix, which none of its laws was fitted to.

    python tools/prefix_error.py PROFILE ACCELERATOR MODEL

PROFILE is LLMServingSim's attention.csv.gz of one accelerator: kernels of vLLM by tokens of a chunk and before it.
Rows that hold decodes are left out. README.md beside this file shows the output.
"""
import argparse
import csv
import gzip

import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from simulator.latency.roofline.model import Roofline

FEW, SOME, LONG = 128, 512, 1024        # tokens of a chunk, at most; tokens before it, at least


def group_of(tokens: int, before: int) -> str:
    """Return the row of the table for a chunk."""
    if before == 0:
        return "no prefix"
    size = f"1 to {FEW}" if tokens <= FEW else f"to {SOME}" if tokens <= SOME else f"above {SOME}"
    return f"{size} behind {LONG} or more" if before >= LONG else f"{size} behind less"


def main():
    """Read the arguments; print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("profile", "accelerator", "model"):
        parser.add_argument(name)
    chosen = parser.parse_args()
    deployment = Deployment(model=load_model(chosen.model), accelerator=load_accelerator(chosen.accelerator),
                            parallelism=Parallelism())
    roofline, errors = Roofline(Roofline.Parameters(), deployment), {}
    with gzip.open(chosen.profile, "rt") as file:
        for row in csv.DictReader(file):
            tokens, before = int(row["prefill_chunk"]), int(row["kv_prefill"])
            if tokens and not int(row["n_decode"]):
                seconds = roofline.breakdown([(tokens, before)])["prefill_attention"] / deployment.model.num_layers
                errors.setdefault(group_of(tokens, before), []).append(seconds * 1e6 / float(row["time_us"]) - 1)
    for group, found in sorted(errors.items()):
        print(f"| {chosen.accelerator} {chosen.model} | {group} | {len(found)} | {np.mean(found):+.0%} "
              f"| {np.abs(found).mean():.0%} |")


if __name__ == "__main__":
    main()
