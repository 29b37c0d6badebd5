"""Rows survive the end of the process, and what was cut off is measured again."""
import pytest

from simulator.errors import InputErrors
from simulator.profiling.journal import Journal
from simulator.profiling.plan import Plan, Point
from simulator.profiling.session import NotMeasured, measure_plan
from simulator.profiling.timing import Measurement

POINTS = [Point("gemm", ("bfloat16", m, 128, 64)) for m in (1, 2, 4)]
PLAN = Plan(POINTS, {}, {})


def measured(seen, failing=()):
    def measure(point):
        seen.append(point)
        if point in failing:
            raise NotMeasured("out of memory")
        return "kernel", Measurement(0.5, 0.01, 5, "perf_counter")
    return measure


def session(folder, seen, failing=()):
    with Journal(folder) as journal:
        return measure_plan(PLAN, journal, measured(seen, failing), lambda: "1980")


def test_what_was_measured_is_not_measured_again(tmp_path):
    session(tmp_path, [])
    seen = []

    assert session(tmp_path, seen) == 0
    assert seen == []


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_half_written_row_is_dropped_and_measured_again(tmp_path, cut):
    session(tmp_path, [])
    file = tmp_path / "gemm_perf.csv"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    seen = []

    session(tmp_path, seen)

    assert seen == POINTS[-1:]
    assert file.read_bytes() == whole


def test_a_table_cut_in_its_header_begins_anew(tmp_path):
    session(tmp_path, [])
    file = tmp_path / "gemm_perf.csv"
    whole = file.read_bytes()
    file.write_bytes(whole[:9])

    session(tmp_path, [])

    assert file.read_bytes() == whole


def test_a_point_that_does_not_fit_is_named_and_the_rest_goes_on(tmp_path):
    seen = []

    assert session(tmp_path, seen, failing=POINTS[:1]) == 2
    assert seen == POINTS
    with Journal(tmp_path) as journal:
        assert journal.missed == {"gemm gemm_dtype bfloat16, m 1, n 128, k 64": "out of memory"}
        assert POINTS[0] in journal


def test_a_table_with_other_columns_is_refused(tmp_path):
    (tmp_path / "gemm_perf.csv").write_text("m,n,k\n1,2,3\n")

    with pytest.raises(InputErrors, match=r"gemm_perf\.csv:1: expected the columns gemm_dtype,m,n,k,kernel_source"):
        Journal(tmp_path)
