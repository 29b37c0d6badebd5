"""What a choice costs: each against the plain event loop on the same requests."""
import time
from dataclasses import replace

import pytest
from cases import Case, NoSink, Prepared
from pairs import cpu_s

from simulator.config.experiment import Output
from simulator.results.files import FileRecorder

pytestmark = pytest.mark.benchmark(group="options", timer=time.process_time)

PLAIN = Case()
SMALL = Case(num_requests=20_000)
LIGHT = Case(num_requests=20_000, rate_per_s=2.0)
TABLES = ("requests", "iterations", "chrome_trace", "token_times")

CHANGES = {     # name: plain case, fields of EngineSetup
    "replicas coupled, 400k requests on 64": (Case(400_000, 64), {"coupled": True}),
    "fast-forward off": (Case(10_000), {"fast_forward": False}),
}
SINKS = {       # name: case, rows that are produced, target
    "iteration table": (PLAIN, NoSink(wants_iterations=True), "<= 2 x"),
    "iteration table, light load": (LIGHT, NoSink(wants_iterations=True), "<= 2 x"),
    "token times": (PLAIN, NoSink(wants_tokens=True), ""),
}
FILES = {       # name: case, what is written, target
    "iteration table, written": (PLAIN, {"iterations": True}, "<= 2 x"),
    "iteration table, light load, written": (LIGHT, {"iterations": True}, "<= 2 x"),
    "token times, written": (SMALL, {"token_times": True}, ""),
    "Chrome trace, written": (SMALL, {"chrome_trace": True}, ""),
}


def test_roofline_against_linear(pairs, report):
    linear, roofline = Prepared(PLAIN), Prepared(replace(PLAIN, backend="roofline"))

    pair = pairs.against(lambda: cpu_s(linear.ready()), roofline.ready, rounds=9)

    per_iteration = pair.ratio * linear.total("iterations") / roofline.total("iterations")
    report.add("roofline", f"{per_iteration:.2f} x linear", "<= 3 x", f"{pair}; the ratio is per iteration")


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_the_engine_against_none(name, pairs, report):
    case, engine = CHANGES[name]
    plain, changed = Prepared(case), Prepared(replace(case, engine=engine))

    pair = pairs.against(lambda: cpu_s(plain.ready()), changed.ready, rounds=7)

    assert changed.means_ms() == plain.means_ms()
    report.add(name, f"{pair.ratio:.2f} x without", "", str(pair))


@pytest.mark.parametrize("name", SINKS)
def test_rows_produced_against_none(name, pairs, report):
    case, sink, target = SINKS[name]
    prepared = Prepared(case)

    pair = pairs.against(lambda: cpu_s(prepared.ready()), lambda: prepared.ready(sink), rounds=9)

    report.add(name, f"{pair.ratio:.2f} x without", target, str(pair))


@pytest.mark.parametrize("name", FILES)
def test_rows_written_against_none(name, pairs, report, tmp_path):
    case, tables, target = FILES[name]
    prepared = Prepared(case)
    output = Output(**dict.fromkeys(TABLES, False) | tables)

    pair = pairs.against(
        lambda: cpu_s(prepared.ready()), lambda: writing(prepared, output, tmp_path), rounds=5)

    report.add(name, f"{pair.ratio:.2f} x without", target, str(pair))


def writing(prepared, output, folder):
    """Return a function that runs the event loop and writes what `output` asks for."""
    recorder = FileRecorder(output, prepared.workload, {})
    run = prepared.ready(recorder)

    def run_and_write():
        with recorder.into(folder):
            run()
            recorder.finish(prepared.finished)

    return run_and_write
