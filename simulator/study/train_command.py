"""`python -m simulator train EXPERIMENT.toml`: train the forests of an experiment ahead of its runs."""
import argparse
import sys

from simulator import registry
from simulator.assembly.site import sites_of
from simulator.config.load import load_experiment
from simulator.errors import InputErrors, KeyFault, faults_of

DONE = 0
TRAINED = "forest"              # the backend that learns from profiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(options: argparse.Namespace) -> int:
    """Train the missing forests of an experiment; return the exit status.

    Raises
    ------
    InputErrors
        Faults of the experiment or its profiles, or another backend is chosen.
    """
    from tqdm import tqdm  # only this command draws one bar for its sub-models

    experiment = load_experiment(options.experiment, options.overrides)
    with faults_of(options.experiment):
        sites = [site for site in sites_of(experiment) if site.pool.latency.backend == TRAINED]
        if not sites:
            names = " and ".join(dict.fromkeys(f'"{pool.latency.backend}"' for pool in experiment.all_pools()))
            raise InputErrors([KeyFault(f'latency.backend: {names} is not trained; expected "{TRAINED}"')])
        backend, paths = registry.load("latency", TRAINED), {}
        with tqdm(desc="training", unit=" sub-models", disable=options.quiet or not sys.stderr.isatty()) as bar:
            for site in sites:
                latency = site.pool.latency
                path = backend.train(latency.parameters, site.deployment, latency.collective is None,
                                     lambda name: (bar.set_postfix_str(name), bar.update()))
                paths[path] = None
    for path in paths:
        print(f"tables in {path}")
    return DONE
