"""The cost of options: each against the plain event loop on equal requests."""
import time
from dataclasses import replace

import pytest
from cases import Case, NoSink, Prepared
from pairs import cpu_s

from simulator.config.experiment import Output
from simulator.domain.host import HostParameters
from simulator.domain.host_defaults import FRONT_END_US
from simulator.results.files import FileRecorder
from simulator.results.memory import MemoryRecorder

pytestmark = pytest.mark.benchmark(group="options", timer=time.process_time)

PLAIN = Case()
VLLM_HOST = HostParameters(**FRONT_END_US)
SMALL = Case(num_requests=20_000)
LIGHT = Case(num_requests=20_000, rate_per_s=2.0)
TABLES = ("requests", "iterations", "chrome_trace", "token_times")

CHANGES = {     # name: plain case, fields of EngineSetup
    "replicas coupled, 400k requests on 64": (Case(400_000, 64), {"coupled": True}),
    "fast-forward off": (Case(10_000), {"fast_forward": False}),
}
SINKS = {       # name: case, rows that are produced, target
    "iteration table": (PLAIN, NoSink(wants_iterations=True), "<= 2 x"),
    "iteration table, light load": (LIGHT, NoSink(wants_iterations=True), "<= 3 x"),
    "token times": (PLAIN, NoSink(wants_tokens=True), ""),
}
OUTPUTS = {     # name: case, tables kept or written, target
    "iteration table": (PLAIN, {"iterations": True}, "<= 2 x"),
    "iteration table, light load": (LIGHT, {"iterations": True}, "<= 3 x"),
    "token times": (SMALL, {"token_times": True}, {"kept": "<= 6 x", "written": "<= 60 ns a token"}),
    "requests": (PLAIN, {"requests": True}, ""),
}
TRACED = {      # name: case
    "Chrome trace, 20k requests": SMALL,
    "the same on 4 replicas": replace(SMALL, replicas=4),
}


def test_roofline_against_linear(pairs, report):
    linear, roofline = Prepared(PLAIN), Prepared(replace(PLAIN, backend="roofline"))

    pair = pairs.against(lambda: cpu_s(linear.ready()), roofline.ready, rounds=9)

    per_iteration = pair.ratio * linear.total("iterations") / roofline.total("iterations")
    report.add("roofline", f"{per_iteration:.2f} x linear", "<= 3 x", f"{pair}; the ratio is per iteration")


@pytest.mark.parametrize("replicas", [64, 512])
def test_host_delays(replicas, pairs, report):
    case = Case(500 * replicas, replicas)
    off, on = Prepared(case), Prepared(replace(case, host=VLLM_HOST))

    pair = pairs.against(lambda: cpu_s(off.ready()), on.ready, rounds=9)

    report.add(f"vLLM's host delays, {replicas} replicas", f"{pair.ratio:.2f} x without", "<= 1.15 x", str(pair))


def test_ranks_in_lock_step_against_one(pairs, report):
    # Steps of eight last longer: at these rates an iteration of either has equally many arrivals and completions.
    one = Prepared(Case(5_000, rate_per_s=34, engine={"coupled": True}))
    eight = Prepared(Case(40_000, 8, ranks=8))

    pair = pairs.against(lambda: cpu_s(one.ready()), eight.ready, rounds=7)

    per_iteration = pair.ratio * one.total("iterations") / eight.total("iterations")
    report.add("8 ranks in lock step", f"{8 * per_iteration:.1f} x one rank", "<= 8 x",
               f"{pair}; a step against an iteration of one, kept up to date")


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


@pytest.mark.parametrize("how", ["kept", "written"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_rows_taken_against_none(name, how, pairs, report, tmp_path):
    case, tables, target = OUTPUTS[name]
    prepared, output = Prepared(case), only(tables)

    def prepare():
        return keeping(prepared, output) if how == "kept" else writing(prepared, output, tmp_path)

    pair = pairs.against(lambda: cpu_s(prepared.ready()), prepare, rounds=5)

    target = target[how] if isinstance(target, dict) else target
    tokens = prepared.total("decode_tokens") + case.num_requests
    each = f"; {1e9 * pair.ours_s / tokens:.0f} ns a token, all in all" if output.token_times else ""
    report.add(f"{name}, {how}", f"{pair.ratio:.2f} x without", target, f"{pair}{each}")


@pytest.mark.parametrize("name", TRACED)
def test_chrome_trace(name, pairs, report, tmp_path):
    prepared = Prepared(TRACED[name])

    pair = pairs.against(lambda: cpu_s(prepared.ready()),
                         lambda: writing(prepared, only({"chrome_trace": True}), tmp_path), rounds=5)

    report.add(name, f"{pair.ours_s - pair.other_s:.2f} s", "<= 0.1 s", str(pair))


def only(tables):
    """Return an [output] table with nothing on but `tables`."""
    return Output(**dict.fromkeys(TABLES, False) | tables)


def keeping(prepared, output):
    """Return a function that runs the event loop and keeps the tables of `output` in memory."""
    recorder = MemoryRecorder(output, prepared.workload)
    run = prepared.ready(recorder)

    def run_and_keep():
        run()
        recorder.finish(prepared.finished)

    return run_and_keep


def writing(prepared, output, folder):
    """Return a function that runs the event loop and writes the tables of `output`."""
    recorder = FileRecorder(output, prepared.workload, {})
    run = prepared.ready(recorder)

    def run_and_write():
        with recorder.into(folder):
            run()
            recorder.finish(prepared.finished)

    return run_and_write
