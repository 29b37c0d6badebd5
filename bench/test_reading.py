"""Reading of trace files, to requests in the engine's form."""
import gzip
import json
import os
import subprocess
import sys
import time
from statistics import median

import numpy as np
import pytest
from pairs import cpu_s
from traffic import chat

from simulator.core.random_streams import RandomStreams
from simulator.workload.build import build_workload
from simulator.workload.formats.mooncake import MooncakeParameters
from simulator.workload.types.trace import Trace, TraceParameters

pytestmark = pytest.mark.benchmark(group="reading", timer=time.process_time)


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    """Return a native trace of a million rows."""
    path = tmp_path_factory.mktemp("traces") / "million.csv"
    chat(1_000_000, 100.0).write_trace(path)
    return path


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory):
    """Return 100k lines in Mooncake's format: 64 users, each prompt a part of its user's whole text."""
    path = tmp_path_factory.mktemp("traces") / "mooncake.jsonl"
    traffic = chat(100_000, 100.0)
    user = np.random.default_rng(2).integers(0, 64, len(traffic.arrival_ns))
    columns = (traffic.arrival_ns // 10**6, traffic.prompt_tokens, traffic.output_tokens, user)
    with open(path, "w", encoding="ascii") as file:
        for ms, prompt, output, code in zip(*(column.tolist() for column in columns), strict=True):
            ids = list(range(100 * code, 100 * code - (-prompt // 512)))
            file.write(f'{{"timestamp": {ms}, "input_length": {prompt}, "output_length": {output}, '
                       f'"hash_ids": {ids}}}\n')
    return path


@pytest.fixture(scope="module")
def waiting_csv(tmp_path_factory):
    """Return a native trace of 100k rows, ten requests a play, each waiting for its predecessor."""
    path = tmp_path_factory.mktemp("traces") / "waiting.csv"
    rows = (f"{row},{row / 100:.2f},100,10,p{row // 10},{f'{row - 1}:end+1.5' if row % 10 else ''}\n"
            for row in range(100_000))
    path.write_text("request_id,arrived_at,num_prefill_tokens,num_decode_tokens,play,wait_for\n" + "".join(rows))
    return path


@pytest.fixture(scope="module")
def weka(tmp_path_factory):
    """Return a directory of 400 traces in Weka's format, 20 requests each with up to 1000 blocks: 4M blocks."""
    folder = tmp_path_factory.mktemp("weka")
    for number in range(400):
        requests = [{"t": 10.0 * k, "type": "n", "model": "m", "in": 3200 * (k + 1), "out": 100, "api_time": 5.0,
                     "hash_ids": list(range(50 * (k + 1)))} for k in range(20)]
        trace = {"id": f"t{number:03}", "block_size": 64, "hash_id_scope": "local", "requests": requests}
        (folder / f"{number:03}.json").write_text(json.dumps(trace))
    return folder


def test_native_csv(csv, benchmark, report):
    parameters = TraceParameters(path=str(csv), format="csv", parameters=None)
    _read(parameters, 1_000_000, benchmark, report.add, "CSV, 1M rows", "<= 1 s")


def test_native_csv_gz(csv, benchmark, report, tmp_path):
    path = tmp_path / "million.csv.gz"
    path.write_bytes(gzip.compress(csv.read_bytes(), compresslevel=1))
    parameters = TraceParameters(path=str(path), format="csv", parameters=None)
    _read(parameters, 1_000_000, benchmark, report.add, "CSV .gz, 1M rows", "<= 1 s")


@pytest.mark.parametrize("is_gzip", [False, True])
def test_azure(is_gzip, benchmark, report, tmp_path):
    rows = 27_303_999 if os.environ.get("SIM_BENCH_LARGE") == "1" else 1_000_000     # the conversations of 2024
    path = tmp_path / "azure.csv"
    write_azure(path, rows, gzip.open if is_gzip else open)
    command = [sys.executable, "-c", READ_AZURE, str(path)]

    told = json.loads(benchmark.pedantic(subprocess.check_output, (command,), rounds=1))

    assert told["rows"] == rows
    name = "Azure 2024" + " .gz" * is_gzip
    report.add(f"{name}, {rows / 1e6:.1f}M rows", f"{told['cpu_s']:.1f} s, {told['bytes'] / rows:.0f} bytes a row",
               "27.3M rows: <= 30 s, <= 180 bytes a row", f"{1e9 * told['cpu_s'] / rows:.0f} ns a row")


READ_AZURE = """
import json, resource, sys, time
from simulator.core.random_streams import RandomStreams
from simulator.workload.build import build_workload
from simulator.workload.types.trace import Trace, TraceParameters
before, start_s = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
trace = Trace(TraceParameters(path=sys.argv[1], format="azure", parameters=None))
workload = build_workload(trace.columns(RandomStreams(0)))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"rows": len(workload), "cpu_s": time.process_time() - start_s, "bytes": 1024 * peak}))
"""


def write_azure(path, rows, opened):
    """Write a trace in the form of Azure's of 2024: some 42 bytes a row, 45 requests a second."""
    rng, at_us = np.random.default_rng(3), 0
    with opened(path, "wt", encoding="ascii") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for first in range(0, rows, 100_000):
            count = min(100_000, rows - first)
            times_us = at_us + np.cumsum(rng.integers(0, 44_000, count))
            at_us = int(times_us[-1])
            stamps = np.datetime_as_string(np.datetime64("2024-05-12", "us") + times_us, "us").tolist()
            lengths = rng.integers(1, 8000, count).tolist(), rng.integers(0, 900, count).tolist()
            file.write("".join(f"{stamp.replace('T', ' ')}+00:00,{prompt},{output}\n"
                               for stamp, prompt, output in zip(stamps, *lengths, strict=True)))


def test_mooncake(jsonl, benchmark, report):
    parameters = TraceParameters(path=str(jsonl), format="mooncake", parameters=MooncakeParameters())
    _read(parameters, 100_000, benchmark, report.add, "Mooncake, 100k lines", "<= 0.05 s")


def test_native_csv_that_waits(waiting_csv, benchmark, report):
    parameters = TraceParameters(path=str(waiting_csv), format="csv", parameters=None)
    _read(parameters, 100_000, benchmark, report.add, "CSV with wait_for, 100k rows", "")


def test_weka(weka, benchmark, report):
    parameters = TraceParameters(path=str(weka), format="weka", parameters=None)
    _read(parameters, 8000, benchmark, report.add, "Weka, 8000 requests with 4M blocks", "")


def _read(parameters, num_requests, benchmark, add, *row):
    what, target = row
    times_s, sizes = [], set()

    def read():
        times_s.append(cpu_s(lambda: sizes.add(len(build_workload(Trace(parameters).columns(RandomStreams(0)))))))

    benchmark.pedantic(read, rounds=5)

    assert sizes == {num_requests}
    add(what, f"{median(times_s):.2f} s", target, f"{1e9 * median(times_s) / num_requests:.0f} ns a row")
