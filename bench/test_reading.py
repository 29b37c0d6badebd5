"""From a trace file to the requests as the engine takes them."""
import gzip
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
    """Return 100k lines in Mooncake's format: 64 users, each prompt a part of what its user says in all."""
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


def test_native_csv(csv, benchmark, report):
    parameters = TraceParameters(path=str(csv), format="csv", parameters=None)
    _read(parameters, 1_000_000, benchmark, report.add, "CSV, 1M rows", "<= 1 s")


def test_native_csv_gz(csv, benchmark, report, tmp_path):
    path = tmp_path / "million.csv.gz"
    path.write_bytes(gzip.compress(csv.read_bytes(), compresslevel=1))
    parameters = TraceParameters(path=str(path), format="csv", parameters=None)
    _read(parameters, 1_000_000, benchmark, report.add, "CSV .gz, 1M rows", "<= 1 s")


def test_mooncake(jsonl, benchmark, report):
    parameters = TraceParameters(path=str(jsonl), format="mooncake", parameters=MooncakeParameters())
    _read(parameters, 100_000, benchmark, report.add, "Mooncake, 100k lines", "")


def _read(parameters, num_requests, benchmark, add, *row):
    what, target = row
    times_s, sizes = [], set()

    def read():
        times_s.append(cpu_s(lambda: sizes.add(len(build_workload(Trace(parameters).columns(RandomStreams(0)))))))

    benchmark.pedantic(read, rounds=5)

    assert sizes == {num_requests}
    add(what, f"{median(times_s):.2f} s", target, f"{1e9 * median(times_s) / num_requests:.0f} ns a row")
