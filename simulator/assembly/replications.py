"""Repeated runs with operator times perturbed by the errors of their tables, for intervals in the summary.

Replications serve equal requests with an equal seed and differ only in operator times (common random numbers; Law,
Simulation Modeling and Analysis, section 11.2). One additional run measures the time of each operator.
"""
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from simulator.assembly import assemble
from simulator.assembly.requests import requests_of
from simulator.assembly.site import Site, sites_of
from simulator.assembly.uncertainty import Deployed, Varied, Watching, draws
from simulator.config.experiment import Experiment
from simulator.latency.readings import Readings
from simulator.latency.uncertainty.left_out import LEFT_OUT, factors
from simulator.results.iteration_log import LogSink
from simulator.results.measured import log_for
from simulator.results.uncertainty import METRICS, Operator, TableFacts, section, value_of
from simulator.workload.base import Workload

REPLICATIONS, INTERVAL = 16, 0.8                # defaults of [latency]


class Interrupted(Exception):
    """A replication was stopped."""


def uncertainty(experiment: Experiment, nominal: dict, summarise: Callable, workload: Workload | None, threads: int,
                monitor: Callable | None = None) -> dict:
    """Return the entries `uncertainty` and `diagnosis` for the summary of a run.

    Parameters
    ----------
    nominal : the summary of the run itself.
    summarise : makes a summary of a finished Run.
    workload : requests in their initial state; None: the requests of the experiment.
    threads : number of concurrent replications.
    monitor : as in `assemble.build`.
    """
    if not nominal["complete"]:
        return {"diagnosis": [*nominal["diagnosis"], "uncertainty: no intervals: the run is not complete"]}
    sites = sites_of(experiment)
    again = partial(_summary, experiment, sites, summarise, _fresh(experiment, sites, workload), monitor)
    settings = experiment.all_pools()[0].latency
    count, interval = settings.uncertainty_replications or REPLICATIONS, settings.uncertainty_share or INTERVAL
    watching = Watching()
    try:
        again(watching)
        drawn = [Varied(watching, factors) for factors in draws(watching.deployed, experiment.seed, count)]
        with ThreadPoolExecutor(min(threads, count)) as pool:
            replicated = list(pool.map(lambda readings: _metrics(again(readings)), drawn))
    except Interrupted:
        return {"diagnosis": [*nominal["diagnosis"], "uncertainty: no intervals: interrupted"]}
    found = section(_metrics(nominal), replicated, interval, _operators(sites, watching.deployed),
                    _left_out(interval, sites))
    return {"uncertainty": found.part, "diagnosis": [*nominal["diagnosis"], *found.notes]}


def _left_out(interval: float, sites: list[Site]) -> dict[str, tuple[float, float]] | None:
    """Return the factors to the ends of intervals by deployments left out; None: not known."""
    backends = {site.pool.latency.backend for site in sites}
    return factors(interval, *backends) if len(backends) == 1 and backends <= LEFT_OUT.keys() else None


def _fresh(experiment: Experiment, sites: tuple[Site, ...], workload: Workload | None) -> Workload | None:
    """Return the requests to copy for each replication; None: open-ended load, each replication draws its own."""
    workload = requests_of(experiment, sites=sites) if workload is None else workload
    return None if workload.is_open_ended else workload


def _summary(experiment: Experiment, sites: tuple[Site, ...], summarise: Callable, workload: Workload | None, monitor,
             readings: Readings) -> dict:
    prepared = assemble.prepare(experiment, workload and workload.untouched(), readings, sites=sites)
    prepared = assemble.with_all_requests(prepared, monitor, readings)
    if prepared.workload.is_open_ended:
        raise Interrupted
    log = log_for(prepared.workload, experiment.workload.measure)
    finished = assemble.build(prepared, LogSink(log), monitor).run()
    if monitor is not None and monitor(0, 0):
        raise Interrupted
    finished.iteration_log = log
    return summarise(finished)


def _metrics(summary: dict) -> dict[str, float | None]:
    return {metric: value_of(summary, metric) for metric in METRICS}


def _operators(sites: tuple[Site, ...], deployed: list[Deployed]) -> list[Operator]:
    names, found = _names(sites, deployed), []
    for name, each in zip(names, deployed, strict=True):
        facts = {table: TableFacts(table, row["file"], row["version"], row["sha256"], row.get("measured", {}))
                 for table, row in each.tables.items()}
        for operator, (ns, beyond_ns) in each.times_ns().items():
            error = each.errors[operator]
            tables = tuple(facts[table] for joined in error.tables for table in joined.split("+") if table in facts)
            found.append(Operator(name, operator, ns, beyond_ns, error, tables or tuple(
                fact for table, fact in facts.items() if table == "laws")))
    return found


def _names(sites: tuple[Site, ...], deployed: list[Deployed]) -> list[str]:
    """Return a label per deployment: the names of its pools; for another model, e.g. a draft model, the model's."""
    found = []
    for each in deployed:
        backend, _, _, deployment = each.asked
        pools = [site.pool.name for site in sites
                 if site.pool.latency.backend == backend and site.deployment == deployment]
        found.append(", ".join(pools) or deployment.model.name)
    return found
