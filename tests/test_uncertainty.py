"""Intervals: what follows from the errors of operators, and what stays as it was."""
import json
from math import exp

import pytest

import simulator
from simulator.errors import InputErrors
from simulator.latency.uncertainty.left_out import factors
from simulator.results.uncertainty import METRICS, section
from simulator.study.predict import predict
from support.operator_profiles import gemm_rows, write_tables

BACKEND = '''
import msgspec
import numpy as np

from simulator.latency.python_model import PythonLatencyModel
from simulator.latency.uncertainty.spread import OperatorError, measured_spread


class Given(msgspec.Struct, frozen=True):
    kernels_us: float = 10_000.0


class OneOperator(PythonLatencyModel):
    """An iteration is one kernel, whose table was 20 % off, and host time, of which nobody knows."""

    Parameters = Given
    knows_errors = True

    def __init__(self, parameters, deployment, factors=None):
        factors = factors or {}
        self.kernel_us = parameters.kernels_us * factors.get("kernel", (1.0, 1.0))[0]
        self.rest_us = 2_000.0 * factors.get("rest", (1.0, 1.0))[0]

    def batch_us(self, batch):
        return self.kernel_us + self.rest_us

    @staticmethod
    def errors(parameters, deployment, collective=None):
        found = {"kernel": OperatorError(measured_spread([0.2], "one point left out"), tables=("timed",)),
                 "rest": OperatorError(None)}
        return found, {"timed": {"file": "here", "version": "1", "sha256": "0", "measured": {"m": [1.0, 8.0]}}}

    @staticmethod
    def varied(given, errors, factors):
        return given | {"factors": factors}
'''
EXPERIMENT = """
engine = {{max_num_seqs = 1, max_model_len = 100, num_gpu_blocks = 100}}
latency = {{backend = {backend}, {latency}}}
workload = {{type = "synthetic", num_requests = 3, prompt_tokens = {{distribution = "constant", value = 10}},
            output_tokens = {{distribution = "constant", value = 5}}, load = {{mode = "concurrency", concurrency = 1}}}}
{more}
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "one_operator.py").write_text(BACKEND)

    def write(latency="uncertainty = true", backend='"one_operator:OneOperator"', more=""):
        file = tmp_path / "uncertain.toml"
        file.write_text(EXPERIMENT.format(backend=backend, latency=latency, more=more))
        return file
    return write


def test_of_one_operator_the_interval_follows_from_its_error(write):
    part = simulator.run(write()).summary["uncertainty"]

    # 12 ms an iteration, 10 of them the kernel's, which takes e^0.2 times as long in half of the replications
    assert part["metrics"]["tpot_ms.mean"] == pytest.approx(
        {"low": 2 + 10 * exp(-0.2), "high": 2 + 10 * exp(0.2), "nominal": 12.0}, abs=1e-5)
    assert (part["interval_frac"], part["replications"]) == (0.8, 16)


def test_operators_say_what_they_take_and_what_is_known_of_them(write):
    summary = simulator.run(write()).summary
    kernel, rest = summary["uncertainty"]["operators"]

    assert summary["uncertainty"]["dominant"] == {"pool": "default", "name": "kernel"}
    assert (kernel["name"], kernel["share_of_time"], kernel["share_of_variance"], kernel["outside_share"]) == (
        "kernel", pytest.approx(10 / 12), 1.0, 0.0)
    assert kernel["error_frac"] == pytest.approx(0.2)
    assert kernel["tables"] == [{"table": "timed", "file": "here", "version": "1", "sha256": "0",
                                 "measured_range": {"m": [1.0, 8.0]}}]
    assert (rest["error_frac"], rest["share_of_variance"]) == (None, None)
    assert any("nobody knows how far rest may be off, 16.7% of the time" in note for note in summary["diagnosis"])


def test_the_run_itself_stays_as_it_was(write):
    with_intervals = simulator.run(write())
    without = simulator.run(write("uncertainty = false"))

    assert with_intervals.requests.tobytes() == without.requests.tobytes()
    summary = dict(with_intervals.summary)
    assert summary.pop("uncertainty")
    assert summary.pop("diagnosis")[:-1] == without.summary["diagnosis"]
    assert summary == {key: value for key, value in without.summary.items() if key != "diagnosis"}


def test_files_hold_the_same_intervals_and_the_same_seed_the_same(write, tmp_path):
    more = 'output = {directory = "out"}'
    simulator.run(write(more=more), out=tmp_path / "out", threads=1)
    written = json.loads((tmp_path / "out" / "summary.json").read_text())

    assert written == simulator.run(write(more=more), threads=3).summary


def test_an_interval_holds_the_share_that_was_asked_for(write):
    keys = "uncertainty = true, uncertainty_replications = 4, uncertainty_share = 0.999"

    part = simulator.run(write(keys)).summary["uncertainty"]

    assert (part["replications"], part["interval_frac"]) == (4, 0.999)


def test_requests_that_a_caller_brings_are_served_again_untouched(write):
    from simulator.assembly.requests import requests_of
    from simulator.config.load import load_experiment

    file = write()
    workload = requests_of(load_experiment(file))

    assert simulator.run(file, workload=workload).summary == simulator.run(file).summary


def test_requests_that_do_not_count_are_in_no_interval(write):
    summary = simulator.run(write(), {"workload.load.concurrency": 3, "workload.measure.warmup_requests": 2}).summary

    # three at once, one after the other, 5 iterations each: the last has 15
    assert summary["uncertainty"]["metrics"]["e2el_ms.mean"] == pytest.approx(
        {"low": 15 * (2 + 10 * exp(-0.2)), "high": 15 * (2 + 10 * exp(0.2)), "nominal": 180.0}, abs=1e-4)


@pytest.mark.parametrize(("latency", "backend", "message"), [
    ("uncertainty = true", '"linear"', 'uncertainty: expected false with latency.backend = "linear", found true'),
    ("uncertainty = false, uncertainty_replications = 8", '"linear"',
     "uncertainty_replications: expected none with latency.uncertainty = false, found 8"),
    ("uncertainty = true, uncertainty_replications = 3", '"linear"',
     "uncertainty_replications: expected an integer from 4 to 4096, found 3"),
    ("uncertainty = true, uncertainty_share = 1.0", '"linear"', "uncertainty_share: expected")])
def test_what_cannot_be_told_is_refused(write, latency, backend, message):
    with pytest.raises(InputErrors, match=message):
        simulator.run(write(latency, backend))


@pytest.mark.parametrize(("key", "message"), [
    ("uncertainty = false", 'expected true, as in pool "a", found false'),
    ("uncertainty_replications = 8", 'expected none, as in pool "a", found 8'),
    ("uncertainty_share = 0.5", 'expected none, as in pool "a", found 0.5')])
def test_pools_vary_together(write, key, message):
    more = f'[[pools]]\nname = "a"\n[[pools]]\nname = "b"\nlatency = {{{key}}}'

    with pytest.raises(InputErrors, match=f"pools.1..latency.{key.split()[0]}: {message}"):
        simulator.run(write(more=more))


def test_operators_of_pools_on_the_same_deployment_have_one_error(tabled):
    more = '[[pools]]\nname = "a"\n[[pools]]\nname = "b"\n[[pools]]\nname = "c"\ntopology = {tensor_parallel = 2}'
    file = tabled(gemm=gemm_rows(sites=LLAMA, factor=10))
    file.write_text(file.read_text() + more)

    rows = simulator.run(file).summary["uncertainty"]["operators"]

    assert {row["pool"] for row in rows} == {"a, b", "c"}


# ---- tables: support.operator_profiles

TABLES = """
model = {{name = "{model}"}}
hardware = {{name = "h100-sxm-80gb"}}
engine = {{max_num_seqs = 8, max_model_len = 256, num_gpu_blocks = 1000}}
latency = {{backend = "operators", path = "tables", cache_directory = "cache", uncertainty = true{more}}}
workload = {{type = "synthetic", num_requests = 4, prompt_tokens = {{distribution = "constant", value = 16}},
            output_tokens = {{distribution = "constant", value = 8}}, load = {{mode = "concurrency", concurrency = 2}}}}
"""


@pytest.fixture
def tabled(tmp_path):
    def tabled(model="llama-3.2-1b", more="", **changes):
        write_tables(tmp_path / "tables", **changes)
        file = tmp_path / "tabled.toml"
        file.write_text(TABLES.format(model=model, more=more))
        return file
    return tabled


LLAMA = ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192), (128256, 2048))        # its products


def test_every_part_of_an_iteration_has_an_error(tabled):
    prediction = predict(tabled(gemm=gemm_rows(sites=LLAMA, factor=10)), prefill=[16], decode=[20])

    # launches of the host are no operator: intervals have them by deployments left out
    assert {name for name, seconds in prediction.breakdown.items() if seconds} - {"graphs"} <= prediction.errors.keys()
    # 10 us + m n x 0.01 ns is a line: points left out are met
    assert prediction.errors["qkv"] == pytest.approx(0.0, abs=1e-9)
    # no heads near those of the tables: the roofline by one share of peak, h100_sxm, bfloat16, whose errors are normal
    assert prediction.errors["decode_attention"] == pytest.approx(0.205 * (3.14159 / 2) ** 0.5, rel=0.03)
    assert 0.0 < prediction.error_frac < 0.9


def test_parts_add_up_to_the_time_of_all_iterations(tabled):
    summary = simulator.run(tabled(gemm=gemm_rows(sites=LLAMA, factor=10), more=', host = {defaults = "none"}')).summary
    rows = {row["name"]: row for row in summary["uncertainty"]["operators"]}

    assert sum(row["share_of_time"] for row in rows.values()) == pytest.approx(1.0)
    assert sum(row["share_of_variance"] for row in rows.values()) == pytest.approx(1.0)
    assert rows["decode_attention"]["outside_share"] == 1.0
    assert rows["qkv"]["tables"][0]["measured_range"]["m"] == [1.0, 32768.0]
    assert "one share of peak, decode bfloat16, h100_sxm" in rows["decode_attention"]["error_of"]


def test_what_no_table_has_is_told_with_its_error(tabled):
    diagnosis = simulator.run(tabled(gemm=gemm_rows(sites=LLAMA, factor=10))).summary["diagnosis"]

    # tools/README.md: one share of peak, decode bfloat16, h100_sxm
    assert any("attention decode: " in note and "priced by the roofline, 20% off in the mean" in note
               for note in diagnosis)


def test_tables_say_what_range_was_measured(tabled):
    file = tabled(gemm=gemm_rows(sites=LLAMA, factor=10))

    summary = simulator.run(file, {"latency.uncertainty": False}).summary

    assert summary["latency"]["tables"]["gemm"]["measured"] == {
        "k": [2048.0, 8192.0], "m": [1.0, 32768.0], "n": [2048.0, 128256.0]}


def test_the_table_of_a_prediction_has_a_column_of_errors(tabled, capsys):
    from simulator.cli import main

    assert main(["predict", str(tabled(gemm=gemm_rows(sites=LLAMA, factor=10))), "--decode", "4x64"]) == 0

    head, *rows = capsys.readouterr().out.splitlines()[3:]
    assert head.split()[:3] == ["us", "share", "error"]
    assert all(len(row.split()) >= 4 for row in rows[:rows.index("") - 1])


def test_the_summary_table_has_a_line_of_intervals(write):
    from simulator.results import summary_table

    table = summary_table(simulator.run(write()).summary).replace("\n" + " " * 13, " ")
    line, = (line for line in table.splitlines() if "uncertainty" in line)

    assert line == ("uncertainty  80% within TTFT 10.19 to 14.21 ms, TPOT 10.19 to 14.21 ms, E2EL 50.94 to 71.07 ms, "
                    "14.07 to 19.63 requests/s; most of it from kernel")


def test_intervals_hold_errors_of_deployments_left_out():
    half, most = factors(0.5), factors(0.8)

    # a tenth of the points lies below, and above: TPOT 0.926 to 1.207 times the prediction, TTFT 0.967 to 2.028
    assert most["tpot_ms"] == pytest.approx((0.926, 1.207), abs=1e-3)
    assert most["ttft_ms"] == pytest.approx((0.967, 2.028), abs=1e-3)
    for metric, (low, high) in half.items():
        assert most[metric][0] < low < high < most[metric][1] and most[metric][0] < 1.0


def test_they_widen_ttft_and_tpot_of_runs_alone():
    nominal = dict.fromkeys(METRICS, 100.0)
    replicated = [dict.fromkeys(METRICS, 100.0 + each) for each in (-40.0, 0.0, 1.0)]
    found = section(nominal, replicated, 0.8, [], {"tpot_ms": (0.9, 1.2)})
    plain = section(nominal, replicated, 0.8, [])

    for metric in METRICS:
        now, before = found.part["metrics"][metric], plain.part["metrics"][metric]
        if metric.startswith("tpot_ms"):
            assert now["low"] == before["low"] < 90.0 and now["high"] == 120.0 > before["high"]
        else:
            assert now == before
    assert [note for note in found.notes if "left out" in note] and not plain.notes
