"""A load sent by several processes, rows split round robin, on one clock."""
import threading
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from simulator.study.observe import files
from simulator.study.observe.campaign import Plan, Sent, send
from simulator.study.processes import in_processes

LOOK_S = 0.05                   # interval at which a signal is passed on
BEGIN_NS = 3_000_000_000        # until all processes have started: each takes 0.3 s, and some for the requests


class Shared(NamedTuple):
    """Input of each process; stop : set when all are to end."""

    plan: Plan
    origin_ns: int
    num_processes: int
    directory: Path
    stop: Any


def part(directory: Path, number: int) -> Path:
    """Return the file of a process's rows while it runs."""
    return directory / f"observed.part-{number}.csv"


def send_in_shares(plan: Plan, origin_ns: int, num_processes: int, directory: Path, stops: Callable[[], bool]) -> Sent:
    """Send the load by several processes.

    The files of the processes are merged by `files.in_order`.
    """
    stop, over = get_context("spawn").Event(), threading.Event()
    shared = Shared(plan, origin_ns + BEGIN_NS, num_processes, directory, stop)
    watch = threading.Thread(target=_pass_on, args=(stops, stop, over), daemon=True)
    watch.start()
    try:
        found = [sent for _, sent in in_processes(_share, shared, map(str, range(num_processes)), num_processes)]
    finally:
        over.set()
        watch.join()
    return Sent([seen for sent in found for seen in sent.seen], any(sent.was_stopped for sent in found),
                min(sent.first_ns for sent in found))


def _pass_on(stops: Callable[[], bool], stop: Any, over: threading.Event) -> None:
    while not over.wait(LOOK_S):
        if stops():
            stop.set()
            return


def _share(shared: Shared, name: str) -> Sent:
    """Send every `num_processes`-th row, in a process of its own."""
    plan, number = shared.plan, int(name)
    names = files.names_of(plan.workload, plan.manner.api == "completions")
    observed = files.ObservedFile(part(shared.directory, number), names)
    try:
        return send(plan, shared.origin_ns, observed.add, shared.stop.is_set, (number, shared.num_processes))
    finally:
        observed.close()
