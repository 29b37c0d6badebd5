"""Recorded runs of BLIS, repeated through the experiment file under `scheduler = "blis"`: equal to the microsecond.

Compared is every figure that BLIS wrote: of each request, of each replica and of the whole run (support/blis_results.py),
and every number that it printed besides (support/blis_text.py). What is not compared is listed there, with the reason.

Where several replicas are equally good BLIS draws one. Our router gets the numbers that BLIS draws
(support/blis_draws.py): with others the mean TTFT of a run of 120 requests can be half as much again, as with any other
seed.
"""
import pytest
import tomli_w

import simulator
from support import blis
from support.blis_draws import drawing_as_blis
from support.blis_experiment import experiment_of
from support.blis_results import Results, differences, expected_aggregate, expected_requests
from support.blis_text import Lines, expected_lines, line_differences

PRINTED_US = 1e-6               # all are whole microseconds, but means, which are written with six decimals
ROUNDED = 1e-12                 # sums of whole microseconds are exact; what follows is rounded a few times

ALL = blis.cases()
pytestmark = pytest.mark.skipif(not ALL, reason=f"no recorded runs under {blis.FOLDER}")


def run(case, folder, monkeypatch):
    """Return the case as BLIS would report our run of it."""
    experiment = experiment_of(case, folder)
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps(experiment), encoding="utf-8")
    with drawing_as_blis(case, monkeypatch):
        return Results(simulator.run(file), experiment, case)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_everything_that_blis_recorded_is_found(case, tmp_path, monkeypatch):
    obstacle = case.obstacle()
    if obstacle:
        pytest.skip(obstacle)
    results = run(case, tmp_path, monkeypatch)
    requests = results.requests()

    assert requests.keys() == case.results.keys() - case.held_back
    found = [(name, *each) for name, expected in expected_requests(case).items()
             for each in differences(requests[name], expected, PRINTED_US)]
    for replica, recorded in case.reports():
        found += [(recorded["instance_id"], *each) for each in differences(
            results.aggregate(replica), expected_aggregate(case, recorded), 0.0, ROUNDED)]
    found += [("printed", *each) for each in line_differences(Lines(results, case).all(), expected_lines(case))]
    assert not found, "\n".join([f"{len(found)} differences: of, what, recorded, ours", *map(str, found[:20])])
