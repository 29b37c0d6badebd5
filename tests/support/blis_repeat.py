"""A case of BLIS on our simulator, and where the two differ.

Where several replicas are equally good, the one that BLIS drew is taken. The router, its scores, its weights and its
rule stay ours; it only gets its random words from Go's generator.
"""
from functools import partial

import tomli_w

import simulator
from simulator.core.draws import Draws
from simulator.engine import build
from support.blis_experiment import experiment_of
from support.blis_pools import PoolResults
from support.blis_random import router_words
from support.blis_results import Results, differences, expected_aggregate, expected_requests
from support.blis_text import Lines, expected_lines, line_differences

WORDS_PER_REQUEST = 2           # a request is routed once, and draws once at most
PRINTED_US = 1e-6               # all are whole microseconds, but means, which are written with six decimals
ROUNDED = 1e-12                 # sums of whole microseconds are exact; what follows is rounded a few times


def repeat(case, folder, monkeypatch):
    """Return the case as BLIS would report our run of it; files are written to `folder`.

    Raises
    ------
    AssertionError
        The router drew more often than BLIS can have.
    """
    experiment = experiment_of(case, folder)
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps(experiment), encoding="utf-8")
    words = router_words(case.seed, WORDS_PER_REQUEST * case.num_requests + 1, case.number("num-instances"))
    draws = Draws.replaying(words)
    with monkeypatch.context() as patch:
        patch.setattr(build, "RoutingContext", partial(build.RoutingContext, draws=draws))
        result = simulator.run(file)
    assert draws.num_replayed <= len(words)
    return (PoolResults if case.pools else Results)(result, experiment, case)


def report_of(results, case):
    """Return what BLIS would have written of our run: by request, by replica (None: of all), and printed."""
    replicas = [replica for replica, _ in case.reports()]
    return {"requests": results.requests(), "runs": {each: results.aggregate(each) for each in replicas},
            "printed": Lines(results, case).all()}


def all_differences(report, case):
    """Return (of, what, recorded, ours) of everything that BLIS recorded and `report` does not have."""
    requests = report["requests"]
    found = [("requests", name, name in case.results, name in requests)
             for name in requests.keys() ^ (case.results.keys() - case.held_back)]
    found += [(name, *each) for name, expected in expected_requests(case).items()
              for each in differences(requests.get(name, {}), expected, PRINTED_US)]
    for replica, recorded in case.reports():
        found += [(recorded["instance_id"], *each) for each in differences(
            report["runs"][replica], expected_aggregate(case, recorded), 0.0, ROUNDED)]
    return found + [("printed", *each) for each in line_differences(report["printed"], expected_lines(case))]
