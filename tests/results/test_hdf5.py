"""results.h5: fields, bytes, and what comes back."""
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from results.fakes import MS, FakeCluster, iterations_of, output_of, small_run
from simulator.domain import records
from simulator.results import tables
from simulator.results.files import FileRecorder
from simulator.results.hdf5 import Writer
from simulator.results.reader import Reader

ATTRIBUTES = {"schema": 1, "name": "small", "seed": 42, "version": "0", "resolved_toml": "seed = 42\n"}


def write(directory, run=None, num_iterations=3, chunk_rows=2, **output):
    """Write results.h5 as a run does; return its path."""
    run = run or small_run()
    recorder = FileRecorder(output_of(**output), run.workload, ATTRIBUTES)
    directory.mkdir()
    with recorder.into(directory):
        FakeCluster(run, recorder, lambda *_: False, num_iterations, chunk_rows).run()
        recorder.finish(run)
    return directory / "results.h5"


def test_requests_have_the_fields_of_the_contract(tmp_path):
    with h5py.File(write(tmp_path / "a")) as file:
        table = file["requests"][:]
        status = json.loads(file["requests"].attrs["status"])

    assert table.dtype.names[:13] == (
        "request_id", "arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns", "prompt_tokens",
        "output_tokens", "cached_tokens", "preemptions", "replica", "prefill_replica", "status")
    assert [table.dtype[name].str for name in table.dtype.names[:13]] == ["<i8"] * 6 + ["<i4"] * 6 + ["|i1"]
    assert table["request_id"].tolist() == [0, 1, 2, 3, 4, 5]
    assert table["completed_ns"].tolist() == [40 * MS, 30 * MS, -1, -1, -1, -1]
    assert table["replica"].tolist() == [0, 0, 0, 0, -1, -1]
    assert set(table["prefill_replica"]) == {-1}
    assert [status[str(code)] for code in table["status"]] == [
        "completed", "completed", "running", "waiting", "rejected", "pending"]


def test_iterations_have_the_fields_of_the_contract_in_order(tmp_path):
    with h5py.File(write(tmp_path / "a")) as file:
        table = file["iterations"][:]

    assert table.dtype.names == (
        "replica", "stage", "start_ns", "duration_ns", "sequences", "prefill_tokens", "decode_tokens", "context_tokens",
        "waiting", "running", "used_blocks", "preempted", "begin_ns", "rank",
        "padded_tokens", "encoder_tokens")
    expected = iterations_of(3)
    for name in table.dtype.names:
        assert table[name].tolist() == expected[name].tolist()


def test_text_ids_come_back_as_text(tmp_path):
    names = ["a", "b" * 40, "chaîne-☃", "d", "e", "f"]

    path = write(tmp_path / "a", small_run(names))

    assert Reader(path).table("requests")["request_id"].tolist() == names
    with h5py.File(path) as file:
        assert [name.decode() for name in file["requests"][:]["request_id"]] == names


def test_pandas_reads_the_tables_as_they_are(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is the reader's choice, not a dependency")
    with h5py.File(write(tmp_path / "a")) as file:
        requests = pandas.DataFrame(file["requests"][:])
        iterations = pandas.DataFrame(file["iterations"][:])

    assert requests.query("status == 3")["completed_ns"].tolist() == [40 * MS, 30 * MS]
    assert iterations["context_tokens"].tolist() == [100, 101, 102]


def test_labels_are_named(tmp_path):
    run = small_run(slo_class=["fast", "slow", "fast", None, "slow", "fast"])

    reader = Reader(write(tmp_path / "a", run))

    assert reader.labels() == {"slo_class": ["fast", "slow"]}
    assert reader.table("requests")["slo_class"].tolist() == [0, 1, 0, -1, 1, 0]


def test_the_root_says_what_the_file_is(tmp_path):
    assert Reader(write(tmp_path / "a")).attributes() == ATTRIBUTES


def test_replicas_are_written(tmp_path):
    with h5py.File(write(tmp_path / "a")) as file:
        table = file["replicas"][:]

    assert table.dtype.names == tuple(name for name in records.REPLICA.names if name != "spare")
    assert (table["num_blocks"][0], table["used_block_ns"][0]) == (100, 1000.0 * MS)


def test_the_life_of_replicas_is_written_where_there_is_one(tmp_path):
    run = small_run()
    run.lifecycle = np.zeros(2, records.LIFECYCLE)
    run.lifecycle["state"], run.lifecycle["spare"] = 4, -1

    with h5py.File(write(tmp_path / "a", run)) as file:
        table, states = file["lifecycle"][:], json.loads(file["lifecycle"].attrs["state"])

    assert table.dtype.names == ("time_ns", "replica", "state", "cause")
    assert [states[str(code)] for code in table["state"]] == ["up", "up"]
    with pytest.raises(LookupError, match="all replicas were up"):
        Reader(write(tmp_path / "b")).table("lifecycle")
    with pytest.raises(LookupError, match="each request stayed at one replica"):
        Reader(write(tmp_path / "c")).table("legs")


def test_what_was_not_asked_for_is_absent_and_named(tmp_path):
    path = write(tmp_path / "a", requests=False, iterations=False)

    with h5py.File(path) as file:
        assert set(file) == {"replicas", "labels"}
    with pytest.raises(LookupError, match=r"\[output\] iterations was false"):
        Reader(path).table("iterations")
    with pytest.raises(LookupError, match=r"\[output\] token_times was false"):
        Reader(path).token_times()


def test_token_times_are_grouped_by_request(tmp_path):
    offsets, times_ns = Reader(write(tmp_path / "a", token_times=True)).token_times()

    assert offsets.tolist() == [0, 4, 5, 7, 7, 7, 7]
    assert (times_ns / MS).tolist() == [10, 30, 35, 40, 30, 50, 50]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["results.h5"]


@pytest.mark.parametrize("num_iterations", [0, 1, tables.BLOCK_ROWS, tables.BLOCK_ROWS + 5])
def test_the_same_rows_give_the_same_bytes_however_they_come(tmp_path, num_iterations):
    one = write(tmp_path / "one", num_iterations=num_iterations, chunk_rows=tables.BLOCK_ROWS, token_times=True)
    other = write(tmp_path / "other", num_iterations=num_iterations, chunk_rows=7919, token_times=True)

    assert one.read_bytes() == other.read_bytes()
    assert len(Reader(one).table("iterations")) == num_iterations


def test_unused_bytes_of_a_record_do_not_reach_the_file(tmp_path):
    bytes_written = []
    for spare in (0, -1):
        path = tmp_path / f"{spare}.h5"
        run = small_run()
        run.lifecycle = np.zeros(1, records.LIFECYCLE)
        run.lifecycle["spare"] = spare
        with Writer(path, ATTRIBUTES, iterations=True, streams={}) as writer:
            writer.append("iterations", iterations_of(10))
            writer.finish(run, requests=True, token_times=None)
        bytes_written.append(path.read_bytes())

    assert bytes_written[0] == bytes_written[1]


def test_an_empty_workload_is_written(tmp_path):
    run = small_run()
    run.workload.requests = run.workload.requests[:0]
    run.workload.demands = run.workload.demands[:0]
    run.workload.request_ids = []

    reader = Reader(write(tmp_path / "a", run, num_iterations=0))

    assert len(reader.table("requests")) == len(reader.table("iterations")) == 0


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from results.test_hdf5 import write
from simulator.errors import OutputError
from simulator.results.directory import staged
from simulator.results.tables import BLOCK_ROWS

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in (0, 100, 3_000, 70_000, 200_000):      # bytes of a file; results.h5 is about 320 kB
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with staged(Path(sys.argv[1]) / "a") as folder:
            write(folder / "inner", None, 2 * BLOCK_ROWS, 5000, chrome_trace=TRACE, token_times=True)
    except OutputError as error:
        print(error.strerror, flush=True)
"""


@pytest.mark.parametrize("trace", [True, False])
def test_a_full_disk_is_an_error_and_no_crash(tmp_path, trace):
    # In its own process: HDF5 may crash at exit.
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", FILL_THE_DISK.replace("TRACE", str(trace)), tmp_path], text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}"})

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["File too large"] * 5
    assert os.listdir(tmp_path) == []
