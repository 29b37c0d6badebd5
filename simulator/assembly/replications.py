"""Run an experiment again with the times of operators off, as far as their tables may be: intervals for the summary.

Replications serve the same requests, by the same seed: what differs is what operators take (common random numbers; Law,
Simulation Modeling and Analysis, section 11.2). One run more watches what each operator takes.
"""
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from simulator.assembly import assemble
from simulator.assembly.uncertainty import Deployed, Varied, Watching, draws
from simulator.config.experiment import Experiment
from simulator.latency.readings import Readings
from simulator.results.iteration_log import LogSink
from simulator.results.measured import log_for
from simulator.results.uncertainty import METRICS, Operator, TableFacts, section, value_of
from simulator.workload.base import Workload

REPLICATIONS, INTERVAL = 16, 0.8                # of [latency], where they are not given


class Interrupted(Exception):
    """A replication was stopped."""


def uncertainty(experiment: Experiment, nominal: dict, summarise: Callable, workload: Workload | None, threads: int,
                monitor: Callable | None = None) -> dict:
    """Return what joins the summary of a run: `uncertainty`, and `diagnosis`.

    Parameters
    ----------
    nominal : the summary of the run itself.
    summarise : makes a summary of a finished Run.
    workload : requests that nobody has served; None: those of the experiment.
    threads : replications at a time.
    monitor : as `assemble.build` takes it.
    """
    if not nominal["complete"]:
        return {"diagnosis": [*nominal["diagnosis"], "uncertainty: no intervals: the run is not complete"]}
    again = partial(_summary, experiment, summarise, _fresh(experiment, workload), monitor)
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
    found = section(_metrics(nominal), replicated, interval, _operators(experiment, watching.deployed))
    return {"uncertainty": found.part, "diagnosis": [*nominal["diagnosis"], *found.notes]}


def _fresh(experiment: Experiment, workload: Workload | None) -> Workload | None:
    """Return the requests to be copied for each replication; None: each reads its own, their number depends on it."""
    workload = assemble.requests_of(experiment) if workload is None else workload
    return None if workload.is_open_ended else workload


def _summary(experiment: Experiment, summarise: Callable, workload: Workload | None, monitor,
             readings: Readings) -> dict:
    prepared = assemble.prepare(experiment, workload and workload.untouched(), readings)
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


def _operators(experiment: Experiment, deployed: list[Deployed]) -> list[Operator]:
    names, found = _names(experiment, deployed), []
    for name, each in zip(names, deployed, strict=True):
        facts = {table: TableFacts(table, told["file"], told["version"], told["sha256"], told.get("measured", {}))
                 for table, told in each.tables.items()}
        for operator, (ns, beyond_ns) in each.times_ns().items():
            error = each.errors[operator]
            tables = tuple(facts[table] for joined in error.tables for table in joined.split("+") if table in facts)
            found.append(Operator(name, operator, ns, beyond_ns, error, tables or tuple(
                fact for table, fact in facts.items() if table == "laws")))
    return found


def _names(experiment: Experiment, deployed: list[Deployed]) -> list[str]:
    """Return whose operators they are: names of pools; of a model beside theirs, its own."""
    found = []
    for each in deployed:
        backend, _, _, deployment = each.asked
        pools = [pool.name for pool in experiment.all_pools()
                 if pool.latency.backend == backend and assemble.deployment_of(pool) == deployment]
        found.append(", ".join(pools) or deployment.model.name)
    return found
