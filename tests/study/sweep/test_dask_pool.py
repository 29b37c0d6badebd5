"""Pieces of work at the workers of Dask: the same answers as by processes, whoever dies."""
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from simulator.study.sweep.pool import Rules
from support.dask_cluster import cluster

dask = pytest.importorskip("dask", reason="Dask comes with the extra `test`")
distributed = pytest.importorskip("distributed")
serve_at = importlib.import_module("simulator.study.sweep.dask_pool").serve_at
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]      # what others deprecate is not ours to mend

Client = distributed.Client
FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[2])]


def work(shared, item):
    """Do what the item says; remember how often this copy of `shared` was used."""
    word, _, rest = str(item).partition(" ")
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "raise":
        raise ValueError("a fault")
    if word == "sleep":
        time.sleep(float(rest))
    shared["used"] = shared.get("used", 0) + 1
    return shared["factor"] * item if isinstance(item, int) else word, os.getpid(), threading.get_ident()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("dask"), 2) as (file, _), Client(scheduler_file=str(file)) as client:
        client.wait_for_workers(2)
        for run in (client.run, client.run_on_scheduler):       # which read the work, too
            run(lambda folders: sys.path.extend(folders), FOLDERS)
        yield client


def results(client, items, **rules):
    return {served.item: served for served in serve_at(client, work, {"factor": 10}, items, Rules(**{
        "num_processes": 1} | rules))}


def test_each_item_is_served_once(client):
    found = list(serve_at(client, work, {"factor": 10}, iter(range(300)), Rules(1)))

    assert sorted((served.item, served.result[0]) for served in found) == [(i, 10 * i) for i in range(300)]
    assert {(served.lost, served.attempts) for served in found} == {(None, 1)}
    assert len({served.result[1] for served in found} - {os.getpid()}) == 2


def test_nothing_to_do_is_done_at_once(client):
    assert results(client, []) == {}


def test_on_stop_what_was_handed_out_is_finished_and_nothing_begins(client):
    done = []
    for served in serve_at(client, work, {"factor": 1}, [f"sleep 0.2{i}" for i in range(60)],
                           Rules(1, stop=lambda: bool(done))):
        done.append(served)
    assert 1 <= len(done) <= 8


def test_a_fault_of_the_work_is_told(client):
    with pytest.raises(ValueError, match="a fault"):
        results(client, [1, "raise"])
    assert results(client, [2])[2].result[0] == 20


def test_who_dies_takes_nobody_along():
    # with nannies, which start a worker anew, as `dask worker` has them
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}), Client(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50) as client:
        found = results(client, [*range(20), "die", *range(20, 40)], retries=1)

    assert sorted(item for item in found if item != "die") == list(range(40))
    assert all(found[i].result[0] == 10 * i for i in range(40))
    assert found["die"].why_lost() == "the workers that served it died, for want of memory most likely"


def test_threads_of_a_worker_share_nothing():
    with Client(n_workers=1, threads_per_worker=4, processes=True, dashboard_address=None, silence_logs=50) as client:
        found = results(client, [f"sleep 0.0{i}" for i in range(10, 60)])
    assert len({served.result[2] for served in found.values()}) > 1
    assert len(found) == 50
