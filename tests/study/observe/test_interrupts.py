"""A measurement that is stopped, or killed, keeps what came."""
import csv
import os
import signal
import subprocess
import sys
import time

import pytest

from simulator.workload.formats.observed_columns import COLUMNS
from support.observing import arrivals, read
from support.sse_server import SERVED, StandIn

PATIENCE_S = 60
TRACE = arrivals(*(0.02 * number for number in range(2000)), output=2)


@pytest.fixture
def measured(experiment, tmp_path, heeded_signals):
    """Start a measurement of 40 s in a process; return it and its directory once five rows are there."""
    def start(server):
        path, directory = experiment(TRACE), tmp_path / "out"
        process = subprocess.Popen(
            [sys.executable, "-m", "simulator", "observe", str(path), "--url", server.url, "--model", SERVED, "--out",
             str(directory), "--self-test", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until_s = time.monotonic() + PATIENCE_S
        while len(lines_of(directory)) < 6:
            assert process.poll() is None and time.monotonic() < until_s, process.communicate()
            time.sleep(0.02)
        return process, directory
    return start


def lines_of(directory):
    path = directory / "observed.csv"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
def test_ctrl_c_keeps_what_came(measured):
    with StandIn(ttft_s=0.1) as server:
        process, directory = measured(server)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 128 + signal.SIGINT, err
    rows, facts = read(directory)
    statuses = [row["status"] for row in rows]
    assert set(statuses) == {"ok", "interrupted"} and statuses.count("ok") >= 5
    assert facts["summary"]["complete"] is False and "INCOMPLETE" in out
    assert facts["summary"]["verdict"]["failed_frac"] == 0      # who was stopped did not fail
    assert facts["summary"]["requests"]["sent"] == len(server.asked) < 2000
    assert (directory / "token_times.h5").exists()
    planned = [float(row["planned_s"]) for row in rows]
    assert planned == sorted(planned)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX")
def test_kill_9_leaves_rows_that_were_written_readable(measured):
    with StandIn(ttft_s=0.01) as server:
        process, directory = measured(server)
        process.kill()
        process.communicate(timeout=PATIENCE_S)

    with open(directory / "observed.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == COLUMNS and len(rows) >= 5
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert {row[COLUMNS.index("status")] for row in rows} == {"ok"}
    assert not (directory / "server.json").exists()


@pytest.mark.ci
@pytest.mark.slow
def test_ctrl_c_reaches_all_processes(experiment, tmp_path, heeded_signals):
    directory = tmp_path / "out"
    with StandIn(ttft_s=0.05) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "simulator", "observe", str(experiment(TRACE)), "--url", server.url, "--model",
             SERVED, "--out", str(directory), "--self-test", "0", "--processes", "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until_s = time.monotonic() + PATIENCE_S
        while len(server.asked) < 10:
            assert process.poll() is None and time.monotonic() < until_s
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 128 + signal.SIGINT, err
    rows, facts = read(directory)
    assert {row["status"] for row in rows} <= {"ok", "interrupted"} and len(rows) >= 10
    assert facts["summary"]["complete"] is False
