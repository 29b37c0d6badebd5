"""Raw results of a finished, or stopped, simulation."""
from collections.abc import Iterable
from itertools import zip_longest

import msgspec
import numpy as np

from simulator.core.weighted_samples import WeightedSamples
from simulator.domain.window import Window


class Run(msgspec.Struct):
    """The tables of one simulation; every metric is a pure function of the tables.

    workload : simulator.workload.base.Workload; the engine has filled in its `requests`. Requests that had not arrived
        when the clock stopped are PENDING and count nowhere.
    complete : all requests had ended, or the horizon was reached. False: the simulation was asked to stop, or could not
        continue, which `diagnosis` explains.
    clock_ns : simulated time reached.
    horizon_ns : where the clock was to stop; None: nowhere.
    stands_still : the simulation processed so many steps at one instant that it would never have ended, a fault of the
        program that `diagnosis` describes.
    replicas : structured array (replicas,), `records.REPLICA`, in order of `replica`.
    itl_ns : WeightedSamples: time in ns between two successive messages of a request.
    journeys : structured array (requests,), `records.JOURNEY`; None: requests went to their replicas at once.
    window : the stretch of time that is measured; None: from 0 to the last completion. Window and iteration_log are
        filled in by the results.
    iteration_log : when iterations ran, simulator.results.iteration_log.IterationLog; None: no log was kept.
    latency : source of the iterations' durations, as reported by the latency backend; {} if it reports none.
    incidents : events of replicas, in order of time, as (time_ns, replica, kind, text): "failure", "recovery", ...;
        replica -1: none in particular. For the Chrome trace.
    legs : structured array (legs,), `records.LEG`, each stay of a request at a replica, in the order in which they
        began; None: a request stays at one replica, and the request table has all of it.
    transfers : structured array (requests,), `records.TRANSFER`, KV transfer of each request from its prefill replica
        to its decode replica; None: each request was done by one replica.
    transfer_counts : number of transfers, by outcome.
    lifecycle : structured array (changes,), `records.LIFECYCLE`, replicas' starts, stops, failures and recoveries, in
        order of time; None: all were up all the time.
    counts : by all replicas; a count is absent where no scheduler has it. kv_allocation_failures: in vain for running
        requests. given_way: preemptions in favour of waiting requests. adapters: {loads, reads, evictions}.
        speculation: {num_draft_tokens, num_invalid_spec_tokens, steps}: drafts that were verified; drafts rejected by
        grammars, where any may; number of verify steps with 0, 1, 2, ... accepted drafts.
    executions : structured array (requests,), `records.EXECUTION`; None: they are not recorded.
    first_answer_ns : int64 (requests,), when the first token after each request's reasoning was seen, -1: there is
        none; None: no workload column marks reasoning. The results fill it in.
    limits : of each replica, why its scheduler rejects requests, as `Scheduler.limits` says, and why it drops them;
        empty: not reported.
    parts : features of the experiment, assembly.parts.base.Part, which add to the results.
    columns : further columns of /requests, recorded by replicas and operations: name -> array (requests,).
    tables : tables of results.h5, recorded by operations: name -> structured array.
    records : further facts that operations recorded for their part, by name.
    diagnosis : notes for a reader of the results, one sentence each: a livelock, for instance.
    """

    workload: object
    complete: bool
    clock_ns: int
    replicas: np.ndarray
    itl_ns: WeightedSamples
    horizon_ns: int | None = None
    journeys: np.ndarray | None = None
    stands_still: bool = False
    window: Window | None = None
    iteration_log: object = None
    latency: dict = {}
    incidents: list[tuple[int, int, str, str]] = []
    legs: np.ndarray | None = None
    transfers: np.ndarray | None = None
    transfer_counts: dict = {}
    lifecycle: np.ndarray | None = None
    counts: dict[str, object] = {}
    executions: np.ndarray | None = None
    first_answer_ns: np.ndarray | None = None
    limits: list[tuple] = []
    parts: tuple = ()
    columns: dict[str, np.ndarray] = {}
    tables: dict[str, np.ndarray] = {}
    records: dict[str, object] = {}
    diagnosis: list[str] = []


def added_up(counts: Iterable[dict]) -> dict:
    """Return the sums by name of numbers, lists of numbers, or dicts.

    Lists are added up element by element.
    """
    counts = list(counts)
    names = dict.fromkeys(name for each in counts for name in each)
    return {name: _sum([each[name] for each in counts if name in each]) for name in names}


def _sum(values: list):
    if isinstance(values[0], dict):
        return added_up(values)
    return [sum(each) for each in zip_longest(*values, fillvalue=0)] if isinstance(values[0], list) else sum(values)
