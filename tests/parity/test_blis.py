"""Recorded runs of BLIS, repeated through the experiment file under `scheduler = "blis"`: equal to the microsecond.

Compared is every figure that BLIS wrote: of each request, of each replica and of the whole run
(support/blis_results.py), and every number that it printed besides (support/blis_text.py). What is not compared is
listed there, with the reason.

Where several replicas are equally good BLIS draws one. Our router gets the numbers that BLIS draws
(support/blis_repeat.py): with others the mean TTFT of a run of 120 requests can be half as much again, as with any
other seed.
"""
import pytest

from support import blis
from support.blis_flags import unknown_flags
from support.blis_repeat import all_differences, repeat, report_of
from support.blis_results import expected_aggregate, expected_requests
from support.blis_text import expected_lines

ALL = blis.cases()
pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded runs under {blis.FOLDER}")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_everything_that_blis_recorded_is_found(case, tmp_path, monkeypatch):
    obstacle = case.obstacle() or case.experiment_obstacle()
    if obstacle:
        pytest.skip(obstacle)

    found = all_differences(report_of(repeat(case, tmp_path, monkeypatch), case), case)
    assert not found, "\n".join([f"{len(found)} differences: of, what, recorded, ours", *map(str, found[:20])])


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """Return the first case of several replicas that is repeated, else the first of all, and our report of it."""
    known = [case for case in ALL if not unknown_flags(case.options)]
    cases = [case for case in known if not case.obstacle() and not case.experiment_obstacle()]
    if not cases:
        pytest.skip("no case to compare")
    case = next((case for case in cases if case.output.get("per_instance")), cases[0])
    with pytest.MonkeyPatch.context() as patch:
        return case, report_of(repeat(case, tmp_path_factory.mktemp("blis"), patch), case)


def parts(case, report):
    """Yield parts of a report, of its requests the first one alone, with the keys that are compared."""
    yield next((report["requests"][name], keys) for name, keys in expected_requests(case).items())
    yield from ((report["runs"][replica], expected_aggregate(case, recorded)) for replica, recorded in case.reports())
    yield report["printed"], expected_lines(case)


def test_a_figure_that_is_missing_or_different_is_found(repeated):
    case, report = repeated
    for part, keys in parts(case, report):
        for key in keys:
            value = part.pop(key)
            assert len(all_differences(report, case)) == 1
            part[key] = value + 1 if isinstance(value, (int, float)) else "another"
            assert len(all_differences(report, case)) == 1
            part[key] = value


def test_a_request_that_is_missing_or_one_too_many_is_found(repeated):
    case, report = repeated
    name, known = next(iter(report["requests"].items()))
    del report["requests"][name]
    assert ("requests", name, True, False) in all_differences(report, case)
    report["requests"] |= {name: known, "request_x": known}
    assert all_differences(report, case) == [("requests", "request_x", False, True)]
