"""Trials at the workers of Dask: who dies takes nobody along, and threads of a worker do not disturb each other."""
import pytest

import simulator
from simulator.study.distributed import trials
from simulator.study.sweep.trial import DONE, KILLED
from support.dask_cluster import wait_until
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


def test_threads_of_a_worker_run_side_by_side(study):
    overrides = {"study.seeds": 40}
    alone = simulator.sweep(study, overrides)
    with distributed.Client(n_workers=1, threads_per_worker=4, processes=True, dashboard_address=None,
                            silence_logs=50) as client:
        runs = simulator.sweep(study, overrides, client=client).runs
    assert runs.tobytes() == alone.runs.tobytes()
