"""Trials at the workers of Dask: who dies takes nobody along, and threads of a worker do not disturb each other."""
import warnings

import pytest

import simulator
from simulator import cli
from simulator.study.distributed import trials
from simulator.study.distributed.dask_client import client_of
from simulator.study.sweep.trial import DONE, KILLED
from support.dask_cluster import cluster, wait_until
from support.studies import EXPERIMENT, STUDY

dask = pytest.importorskip("dask", reason="Dask comes with the extra `test`")
distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]      # what others deprecate is not ours to mend

DEADLY = """
import os, signal
from simulator.workload.types.synthetic import Synthetic

class Deadly(Synthetic):
    def columns(self, streams, wanted):
        if streams.seed == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().columns(streams, wanted)
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "base.toml").write_text(EXPERIMENT)
    (tmp_path / "small.toml").write_text(STUDY)
    return tmp_path / "small.toml"


def statuses(runs, status):
    return sorted(runs["seed"][runs["status"] == (DONE, "refused", "failed", "timeout", KILLED).index(status)].tolist())


@pytest.mark.ci
def test_run_of_which_workers_die_is_found_and_the_others_are_done(study):
    (study.parent / "users_at_dask.py").write_text(DEADLY)
    overrides = {"workload.type": "users_at_dask:Deadly", "study.seeds": [11, 12, 13, 14],
                 "study.axes": {"engine.max_num_seqs": [8], "workload.arrival.rate_per_s": [9.0]}}
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), distributed.Client(
            n_workers=4, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50) as client:
        runs = simulator.sweep(study, overrides, client=client).runs
    assert statuses(runs, KILLED) == [13] and statuses(runs, DONE) == [11, 12, 14]


def test_workers_that_have_all_gone_are_not_waited_for_without_end(study, monkeypatch):
    monkeypatch.setattr(trials, "NO_WORKERS_S", 1.0)
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None,
                            silence_logs=50) as client:
        client.cluster.scale(0)
        wait_until(lambda: not client.nthreads())
        runs = simulator.sweep(study, client=client).runs
    assert len(runs) == 8 and (runs["status"] == -1).all()


@pytest.mark.ci
@pytest.mark.parametrize(("command", "table", "told"), [
    ("capacity", 'kind = "capacity"\nfrom = 1.0\nrel_tol = 0.1\n[study.slo]\n'
                 '"ttft_ms.p99" = {max = 200.0}\n', "capacity.json"),
    ("tune", 'kind = "tune"\n[study.objectives]\n"ttft_ms.mean" = "min"\n[study.axes]\n'
             '"engine.max_num_seqs" = [4, 8, 16]\n', "tune.json"),
])
def test_searches_find_the_same_at_workers(tmp_path, command, table, told):
    (tmp_path / "base.toml").write_text(EXPERIMENT)
    file = tmp_path / "search.toml"
    file.write_text(f'extends = "base.toml"\n[study]\n{table}')
    with cluster(tmp_path) as (scheduler, _):
        for out, place in (("here", ()), ("there", ("--dask", str(scheduler)))):
            assert cli.main([command, str(file), "--out", str(tmp_path / out), "--quiet", *place]) == 0
    assert (tmp_path / "here" / told).read_bytes() == (tmp_path / "there" / told).read_bytes()


@pytest.mark.ci
def test_threads_of_a_worker_run_side_by_side(study):
    overrides = {"study.seeds": 40}
    alone = simulator.sweep(study, overrides)
    with distributed.Client(n_workers=1, threads_per_worker=4, processes=True, dashboard_address=None,
                            silence_logs=50) as client:
        runs = simulator.sweep(study, overrides, client=client).runs
    assert runs.tobytes() == alone.runs.tobytes()


@pytest.mark.ci
def test_two_local_clusters_take_ports_of_their_own():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Port .* is already in use")
        with client_of("local") as one, client_of("local") as other:
            assert one.submit(len, "ab").result() == other.submit(len, "cd").result() == 2
