"""A client of Dask: workers of this machine, a scheduler's address, or a scheduler's JSON file.

Source of the forms: Dask's documentation, distributed.Client and LocalCluster.
"""
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from simulator.core.cores import available_cores
from simulator.errors import InputErrors, MissingExtra
from simulator.study.sweep.sources import hash_of_sources

INSTALL = "pip install 'simulator[dask]'"
PATIENCE_S = 30.0               # for a scheduler to answer
WORKERS_S = 600.0               # for its first worker: a batch system starts workers when it has room


@contextmanager
def client_of(place: str, tell: Callable[[str], None] = lambda text: None) -> Iterator[Any]:
    """Yield a distributed.Client with workers that run this program's sources.

    Client and workers that were opened are closed at the end.

    Parameters
    ----------
    tell : callback, called while the client waits for workers.
    place : "local": a process for each core; "tcp://host:8786"; or the path of a scheduler's JSON file.

    Raises
    ------
    InputErrors
        There is no such scheduler, it has no workers, or they run another version.
    MissingExtra
        distributed is not installed.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise MissingExtra([f"--dask needs distributed: install it with {INSTALL}"]) from None
    with ExitStack() as opened:
        if place == "local":
            cluster = opened.enter_context(LocalCluster(
                n_workers=available_cores(), threads_per_worker=1, silence_logs=40,
                dashboard_address=":0", scheduler_kwargs={"dashboard": False}))      # any port: 8787 may be taken
            client = Client(cluster)
        else:
            client = _connected(Client, place)
        opened.enter_context(client)
        _wait_for_workers(client, place, tell)
        check_workers(client, place)
        yield client


def check_workers(client: Any, place: str = "Dask") -> None:
    """Make sure that all workers at `place` run the sources of this program.

    Raises
    ------
    InputErrors
        Some workers run other sources.
    """
    found, ours = client.run(_sources_here), hash_of_sources()
    faults = [f"--dask {place}: worker {address} runs sources {theirs[:12]}, this is {ours[:12]}"
              for address, theirs in sorted(found.items()) if theirs != ours]
    if faults:
        raise InputErrors(faults)


def check_here(expected: str) -> None:
    """Make sure, at a worker, that it runs the sources of the client.

    The worker may have joined after the others were checked.

    expected : hash of the sources of the client.

    Raises
    ------
    InputErrors
        It does not.
    """
    if hash_of_sources() != expected:
        raise InputErrors([f"--dask: a worker runs sources {hash_of_sources()[:12]}, the client {expected[:12]}"])


def _sources_here() -> str:
    return hash_of_sources()


def _wait_for_workers(client: Any, place: str, tell: Callable[[str], None]) -> None:
    if client.nthreads():
        return
    tell(f"--dask {place}: waiting for a worker")
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError:
        raise InputErrors([f"--dask {place}: the scheduler has no workers: start some with `dask worker`"]) from None


def _connected(make: Any, place: str) -> Any:
    is_file = place.endswith(".json") or os.path.sep in place.removeprefix("tcp://").removeprefix("tls://")
    if is_file and not os.path.exists(place):
        raise InputErrors([f"--dask {place}: no such file; `dask scheduler --scheduler-file` writes it"])
    if not is_file and ":" not in place:
        raise InputErrors([f'--dask {place}: expected "local", an address as tcp://host:8786, or the JSON file of a '
                           "scheduler"])
    try:
        return make(scheduler_file=place, timeout=PATIENCE_S) if is_file else make(place, timeout=PATIENCE_S)
    except (OSError, ValueError) as error:
        raise InputErrors([f"--dask {place}: no scheduler answers: {' '.join(str(error).split())}"]) from None
