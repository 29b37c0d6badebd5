"""Errors of the formula for small operators: bytes / (0.8 x memory bandwidth) + 3 us a kernel.

    python tools/formula_error.py ACCELERATOR,MODEL,FOLDER ...

Norms, activations, rotary embeddings and samplers are in no table of aiconfigurator; profiles of LLMServingSim and of
Frontier timed them. Prints, for each, quantiles of |ln(formula / measured)| over its measured rows, "size" below, and
the mean of all these quantile functions, the content of simulator/latency/uncertainty/known_errors.py.
"""
import argparse

import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from simulator.latency.operators.composition import MEASURED_TOGETHER, Composer
from simulator.latency.operators.curves import EXACT
from simulator.latency.operators.database import Database
from simulator.latency.operators.model import Operators
from simulator.latency.roofline.costs import rates
from simulator.latency.roofline.model import Roofline

SHARES = np.linspace(0, 1, 11)


class Compared(Database):
    """A database that prices each small operator by the formula, too.

    found : operator -> ln(formula / measured) of its measured points.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.found: dict[str, list[float]] = {}

    def small(self, name, elements, tokens):
        """Return the measured times; record the error of the formula."""
        times = super().small(name, elements, tokens)
        if times is not None:
            kernels = 2 if name in {*MEASURED_TOGETHER, "sampler"} else 1
            share = kernels if name in MEASURED_TOGETHER else 1
            is_measured = (times.origins == EXACT) & (tokens > 0)
            formula_ns = self.small_ns(2 * elements * share, tokens[is_measured], kernels)
            self.found.setdefault(name, []).extend(np.log(formula_ns / times.ns[is_measured]))
        return times


def compared(text):
    """Return operator -> ln(formula / measured) of a profile, ACCELERATOR,MODEL,FOLDER."""
    accelerator, model, folder = text.split(",")
    parameters = Operators.Parameters(path=folder)
    deployment = Deployment(model=load_model(model), accelerator=load_accelerator(accelerator),
                            parallelism=Parallelism())
    database = Compared(parameters, deployment.accelerator, deployment)
    Composer(database, parameters, deployment, rates(Roofline.Parameters(), deployment)).compose()
    return {name: np.array(errors) for name, errors in database.found.items() if len(errors)}


def main():
    """Read the arguments, print a row for each operator, and the mean of their quantiles."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("profiles", nargs="+", metavar="ACCELERATOR,MODEL,FOLDER")
    quantiles = []
    print("| profile | operator | rows | mean size | mean | 10 % | 50 % | 90 % |")
    print("|---|---|---|---|---|---|---|---|")
    for text in parser.parse_args().profiles:
        for name, errors in compared(text).items():
            sizes = np.abs(errors)
            quantiles.append(np.quantile(sizes, SHARES))
            low, middle, high = np.quantile(sizes, (0.1, 0.5, 0.9))
            print(f"| {' '.join(text.split(',')[:2])} | {name} | {len(sizes)} | {sizes.mean():.2f} | "
                  f"{errors.mean():+.2f} | {low:.2f} | {middle:.2f} | {high:.2f} |")
    print("\nmean of the quantiles:", ", ".join(f"{each:.3f}" for each in np.mean(quantiles, axis=0)))


if __name__ == "__main__":
    main()
