"""One giant run at workers of Dask: the very bytes of a single process, whoever dies on the way."""
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import simulator
from simulator import cli
from simulator.study.distributed.giant_run import InParts
from support.dask_cluster import cluster, end, wait_until

distributed = pytest.importorskip("distributed", reason="Dask comes with the extra `test`")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]      # what others deprecate is not ours to mend

EXPERIMENT = Path(__file__).parents[3] / "configs" / "quickstart.toml"
OVERRIDES = {"topology.replicas": 8, "workload.arrival.rate_per_s": 80.0, "workload.num_requests": 4000}
SETTINGS = [f"--set={key}={value}" for key, value in OVERRIDES.items()]
FILES = ("summary.json", "results.h5", "resolved.toml")


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the results of one process."""
    out = tmp_path_factory.mktemp("whole") / "results"
    assert cli.main(["run", str(EXPERIMENT), *SETTINGS, "--out", str(out), "--quiet"]) == 0
    return out


def test_workers_write_the_bytes_of_one_process(dask, whole, tmp_path):
    file, _ = dask
    out = tmp_path / "results"
    assert cli.main(["run", str(EXPERIMENT), *SETTINGS, "--dask", str(file), "--out", str(out), "--quiet"]) == 0
    assert all((out / name).read_bytes() == (whole / name).read_bytes() for name in FILES)


def test_address_of_the_scheduler_will_do(dask, whole, tmp_path):
    address = json.loads(dask[0].read_text())["address"]
    assert address.startswith("tcp://127.0.0.1:")
    out = tmp_path / "results"
    assert cli.main(["run", str(EXPERIMENT), *SETTINGS, "--dask", address, "--parts", "3", "--out", str(out)]) == 0
    assert (out / "results.h5").read_bytes() == (whole / "results.h5").read_bytes()


@pytest.mark.ci
def test_worker_that_is_killed_in_the_middle_changes_nothing(whole, tmp_path):
    out = tmp_path / "results"
    with (cluster(tmp_path) as (file, (victim, _)), distributed.Client(scheduler_file=str(file)) as client,
          ThreadPoolExecutor(1) as aside):
        client.wait_for_workers(2)
        run = aside.submit(simulator.run, EXPERIMENT, OVERRIDES | {"workload.num_requests": 40_000}, out=out,
                           client=InParts(client, 8))
        wait_until(lambda: any(len(tasks) > 0 for tasks in client.processing().values()))
        end(victim)
        run.result()
        assert len(client.nthreads()) == 1
    alone = tmp_path / "alone"
    simulator.run(EXPERIMENT, OVERRIDES | {"workload.num_requests": 40_000}, out=alone)
    assert all((out / name).read_bytes() == (alone / name).read_bytes() for name in FILES)


def test_nobody_answers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("simulator.study.distributed.dask_client.PATIENCE_S", 0.5)
    for place, told in ((str(tmp_path / "no.json"), "no such file"), ("host", "expected \"local\""),
                        ("tcp://127.0.0.1:1", "no scheduler answers")):
        assert cli.main(["run", str(EXPERIMENT), "--dask", place, "--out", str(tmp_path / "out")]) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_workers_of_other_sources_are_refused(dask, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("simulator.study.distributed.dask_client.hash_of_sources", lambda: "0" * 64)
    assert cli.main(["run", str(EXPERIMENT), "--dask", str(dask[0]), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("runs sources") == 2 and "this is 000000000000" in error


@pytest.mark.ci
def test_one_piece_is_refused_with_the_reason(dask, capsys, tmp_path):
    assert cli.main(["run", str(EXPERIMENT), "--dask", str(dask[0]), "--out", str(tmp_path / "out")]) == 2
    assert "cannot be cut into parts: it has one replica" in capsys.readouterr().err
