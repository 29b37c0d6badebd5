"""Answers over several runs: the curve, intervals, layouts, and the search of plan."""
import pytest

from simulator.domain.facts import shipped
from simulator.errors import InputErrors
from simulator.latency.readings import Readings
from simulator.study.exploring.answering import Source, Superseded
from simulator.study.exploring.editing import with_values
from simulator.study.exploring.further import curve_of, intervals_of, measured_around
from simulator.study.exploring.layouts import layouts_of, plan_of

FILE = str(shipped("configs") / "quickstart.toml")
TEXT = with_values((shipped("configs") / "quickstart.toml").read_text(), FILE, {"workload.num_requests": 60})
SOURCE = Source(TEXT, FILE)


def summary(load, most):
    return {"slo_attainment": 1.0 if load <= most else 0.4 * most / load}


def test_loads_are_doubled_until_they_fail_and_the_edge_is_divided():
    found = measured_around(10.0, lambda load: [summary(load, 25.0)])

    # 5, 10, 20 hold; 40 keeps 0.25 of the answers, less than half of 0.99; between 20 and 40: 25, 30, 35
    assert list(found) == [5.0, 10.0, 20.0, 25.0, 30.0, 35.0, 40.0]


def test_loads_are_halved_where_the_first_fails():
    assert list(measured_around(10.0, lambda load: [summary(load, 2.0)])) == [1.25, 1.5625, 1.875, 2.1875, 2.5, 5.0]


def test_the_curve_has_least_and_most_over_seeds():
    chart = curve_of(SOURCE, Readings(), lambda: False)["chart"]
    goodput = chart["panels"][0]["marks"][0]

    assert (goodput["kind"], goodput["label"]) == ("Errors", "goodput")
    assert (goodput["low"] <= goodput["y"]).all()
    assert (goodput["y"] <= goodput["high"]).all()
    assert (goodput["low"] < goodput["high"]).any()
    assert "3 seeds" in chart["says"]


def test_intervals_name_the_operators_with_the_largest_share():
    found = intervals_of(SOURCE, Readings(), lambda: False)

    tail = found["metrics"]["ttft_ms.p99"]
    assert tail["low"] < tail["high"]
    assert found["operators"][0]["name"] == "dense"


def test_layouts_of_the_model_with_the_present_one():
    found = layouts_of(SOURCE)

    assert [row["cells"][:3] for row in found["rows"] if row["is_now"]] == [["1", "1", "1"]]
    assert found["rows"][1]["set"] == {"tp": 2, "pp": 1, "dp": 1, "topology.expert_parallel": 1}


@pytest.mark.parametrize(("changes", "fault"), [
    ({"slo.ttft_ms": None, "slo.tpot_ms": None}, "slo: plan takes ttft_ms or tpot_ms"),
    ({"engine.scheduler": "orca"}, 'engine.scheduler: plan takes vllm, sglang, tensorrt_llm, found "orca"')])
def test_experiments_without_an_answer_of_plan(changes, fault):
    with pytest.raises(InputErrors, match=fault):
        plan_of(Source(with_values(TEXT, FILE, changes), FILE), 1, lambda: False)


def test_a_search_ends_when_it_is_superseded():
    with pytest.raises(Superseded):
        plan_of(SOURCE, 1, lambda: True)


def test_workloads_without_a_rate_have_no_curve():
    file = shipped("configs") / "closed_loop.toml"
    with pytest.raises(InputErrors, match="no curve against the load"):
        curve_of(Source(file.read_text(), str(file)), Readings(), lambda: False)
