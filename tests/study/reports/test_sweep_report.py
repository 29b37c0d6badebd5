"""The report of a sweep: nothing is left out silently, and every number can be worked by hand."""
import shutil

import numpy as np
import pytest

from simulator.results.figures.chart import Errors, Intervals, Level, Points
from simulator.study.reports.curves import curves_of, metric_chart
from simulator.study.reports.effects import effect_charts, effects_table
from simulator.study.reports.load import GOODPUT
from simulator.study.reports.runs import Runs
from simulator.study.reports.sweep import sweep_page
from study.reports.made import sweep

RATE = "workload.arrival.rate_per_s"
SEQS = "engine.max_num_seqs"


def section(page, title):
    (found,) = [each for each in (*page.before, *page.after) if each.title.startswith(title)]
    return found


def chart(page, name):
    (found,) = [each for each in page.charts if each.name == name]
    return found


def test_what_has_not_ended_is_said_first(tmp_path):
    page = sweep_page(sweep(tmp_path / "a", [({"x": 1}, (10.0, 14.0)), ({"x": 2}, (20.0, None))]), None)

    assert page.says == ("Incomplete: 1 of 4 runs have not ended. 2 points, 4 runs: 3 done, 1 not ended; no queue "
                         "grows.")
    assert not page.is_good


def test_a_sweep_of_which_nothing_ended_makes_a_report(tmp_path):
    page = sweep_page(sweep(tmp_path / "a", [({"x": 1}, (None, None)), ({"x": 2}, (None, None))]), None)

    assert page.says == "Incomplete: 4 of 4 runs have not ended. 2 points, 4 runs: 4 not ended."
    assert page.more.startswith("No point is steady")


def test_failures_and_refusals_are_counted_by_reason(tmp_path):
    folder = sweep(tmp_path / "a", [({"x": 1}, ("refused: no room", "refused: no room")),
                                    ({"x": 2}, (20.0, "failed: broken"))])
    page = sweep_page(folder, None)

    assert section(page, "Runs that").rows == (("refused", "2", "no room"), ("failed", "1", "broken"))
    assert section(page, "Runs that").says == "3 of 4 runs."
    assert not page.is_good                         # a run failed


def test_refused_is_an_answer(tmp_path):
    page = sweep_page(sweep(tmp_path / "a", [({"x": 1}, ("refused: no", "refused: no")), ({"x": 2}, (1.0, 1.0))]), None)

    assert page.is_good and page.says == "2 points, 4 runs: 2 done, 2 refused; no queue grows."


def test_points_have_intervals_and_paired_differences(tmp_path):
    # less the baseline of the same seed: 6 and 8, mean 7, half-width 12.7 x 1
    folder = sweep(tmp_path / "a", [({"x": 1}, (10.0, 14.0)), ({"x": 2}, (16.0, 22.0))], baseline=0)

    assert section(sweep_page(folder, None), "Points").rows == (
        ("0", "1", "2", "12 ± 25.4", "-", ""), ("1", "2", "2", "19 ± 38.1", "+7 ± 12.7", ""))


def test_the_best_point_is_steady_and_noise_tells_which_are_as_good(tmp_path):
    growing = {"ttft_ms.p99": 1.0, "backlog": "growing"}
    folder = sweep(tmp_path / "a", [({"x": 1}, (growing, growing)), ({"x": 2}, (10.0, 14.0)), ({"x": 3}, (12.0, 13.0)),
                                    ({"x": 4}, (20.0, 24.0))])
    rows = section(sweep_page(folder, None), "Best").rows

    # 3 less 2: 2 and -1, within noise; 4 less 2: 10 and 10, beyond it
    assert rows == (("TTFT p99, ms", "least", "12 ± 25.4", "x 2", "1 point"),)


def test_a_curve_for_each_combination_of_the_others(tmp_path):
    points = [({RATE: rate, SEQS: seqs}, (rate * seqs, rate * seqs + 2.0)) for rate in (2.0, 4.0) for seqs in (8, 16)]
    runs = Runs(sweep(tmp_path / "a", points))
    curves = curves_of(runs, RATE)
    (panel,) = metric_chart(runs, curves, "ttft_ms.p99", 0).panels

    assert [curve.label for curve in curves.curves] == ["max_num_seqs 8", "max_num_seqs 16"] and curves.over == ""
    assert [(mark.x.tolist(), mark.y.tolist()) for mark in panel.marks] == [([2, 4], [17, 33]), ([2, 4], [33, 65])]
    assert np.allclose(panel.marks[0].high - panel.marks[0].y, 12.706205)


def test_of_many_combinations_the_axis_that_matters_most_makes_the_curves(tmp_path):
    points = [({"a": a, "b": b, "c": c}, (100.0 * b + c,) * 2) for a in (1, 2) for b in (1, 2, 3) for c in (1, 2, 3)]
    runs = Runs(sweep(tmp_path / "a", points))
    curves = curves_of(runs, "a")

    assert [curve.label for curve in curves.curves] == ["b 1", "b 2", "b 3"] and curves.over == "c"
    (panel,) = metric_chart(runs, curves, "ttft_ms.p99", 0).panels
    assert panel.marks[1].y.tolist() == [202.0, 202.0]          # the mean of 201, 202, 203


def test_axes_that_move_together_make_one_curve(tmp_path):
    runs = Runs(sweep(tmp_path / "a", [({"a": number, "b": 10 * number}, (number, number)) for number in range(3)]))

    assert [curve.rows for curve in curves_of(runs, "a").curves] == [(0, 1, 2)]


def test_points_whose_queue_grows_are_hollow(tmp_path):
    growing = {"ttft_ms.p99": 50.0, "backlog": "growing"}
    runs = Runs(sweep(tmp_path / "a", [({"x": 1}, (10.0, 14.0)), ({"x": 2}, (growing, growing))]))
    found = metric_chart(runs, curves_of(runs, "x"), "ttft_ms.p99", 0)
    (mark,) = found.panels[0].marks

    assert mark.hollow.tolist() == [False, True] and np.isnan(mark.high).tolist() == [False, True]
    assert "Hollow points have no steady state" in found.says


def test_a_drawn_axis_is_a_cloud_with_means_of_groups(tmp_path):
    runs = Runs(sweep(tmp_path / "a", [({"x": float(number)}, (float(number),) * 2) for number in range(80)]))
    cloud, means = metric_chart(runs, curves_of(runs, "x"), "ttft_ms.p99", 0).panels[0].marks

    assert isinstance(cloud, Points) and len(cloud.x) == 80
    assert means.y.tolist() == [4.5 + 10 * group for group in range(8)]


def test_a_large_cloud_keeps_its_extremes_and_the_page_stays_small(tmp_path):
    points = [({"x": float(number)}, (float(number % 97),) * 2) for number in range(2000)]
    runs = Runs(sweep(tmp_path / "a", points))
    found = metric_chart(runs, curves_of(runs, "x"), "ttft_ms.p99", 0)

    assert len(found.panels[0].marks[0].x) <= 500 and "Of each pixel column" in found.says
    assert (found.panels[0].marks[0].y.min(), found.panels[0].marks[0].y.max()) == (0, 96)


def test_main_effects_are_means_over_the_other_axes(tmp_path):
    points = [({"x": x, "router": name}, (x + more, x + more)) for x in (1, 2) for name, more in (("a", 0), ("b", 10))]
    runs = Runs(sweep(tmp_path / "a", points))
    numbers, names = effect_charts(runs)

    assert effects_table(runs).rows == (("x", "1", "2", "6 ± 0"), ("x", "2", "2", "7 ± 0"),
                                        ("router", "a", "2", "1.50 ± 0"), ("router", "b", "2", "11.5 ± 0"))
    (mark,) = numbers.panels[0].marks
    assert isinstance(mark, Errors) and mark.y.tolist() == [6, 7]
    (mark,) = names.panels[0].marks
    assert isinstance(mark, Intervals) and (mark.names, mark.values) == (("a", "b"), (1.5, 11.5))


def test_goodput_against_rate_has_every_slo_and_says_up_to_which_load(tmp_path):
    def ends(good):
        return ({"ttft_ms.p99": 5.0, "tpot_ms.p99": 3.0, "request_goodput": good, "request_throughput": 10.0},) * 2

    folder = sweep(tmp_path / "a", [({RATE: 4.0}, ends(10.0)), ({RATE: 8.0}, ends(9.9)), ({RATE: 16.0}, ends(5.0))],
                   slo={"ttft_ms": 20.0, "tpot_ms": 4.0})
    page = sweep_page(folder, None)
    found = chart(page, GOODPUT)

    # of 100 requests in 10 s: 10 a second are all of them, 9.9 are 99 %
    assert page.more == "99% of the requests keep every SLO up to rate_per_s 8."
    assert [panel.y_label for panel in found.panels] == ["goodput, req/s", "served, req/s", "within SLO, %",
                                                         "TTFT p99, ms", "TPOT p99, ms"]
    levels = [mark for panel in found.panels for mark in panel.marks if isinstance(mark, Level)]
    assert [(level.y, level.text) for level in levels] == [(99.0, "99%"), (20.0, "SLO 20 ms"), (4.0, "SLO 4 ms")]


def test_the_curves_that_guidellm_draws_are_there_where_the_rate_was_varied(tmp_path):
    def ends(rate):
        leaves = {f"{name}.{part}": rate for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms")
                  for part in ("mean", "p50", "p99")}
        return (leaves | {"request_throughput": rate, "output_throughput": 10 * rate, "in_system.mean": rate,
                          "requests.rejected": rate},) * 2

    page = sweep_page(sweep(tmp_path / "a", [({RATE: rate}, ends(rate)) for rate in (4.0, 8.0)]), None)

    assert {each.name for each in page.charts} >= {
        "load_latency", "load_per_token", "load_throughput", "load_latency_by_throughput", "load_breakdown",
        "load_efficiency", "load_outcomes"}
    assert chart(page, "load_efficiency").panels[0].marks[0].y.tolist() == [20.0, 40.0]      # two GPUs were paid for
    assert [mark.label for mark in chart(page, "load_outcomes").panels[0].marks] == ["completed", "rejected"]


def test_without_a_rate_there_are_no_such_curves(tmp_path):
    page = sweep_page(sweep(tmp_path / "a", [({SEQS: 4}, (1.0, 2.0)), ({SEQS: 8}, (1.0, 2.0))]), None)

    assert not [each for each in page.charts if each.name.startswith("load_")]


def test_against_counts_points_without_a_partner(tmp_path):
    one = sweep(tmp_path / "a", [({"x": 1}, (10.0, 14.0)), ({"x": 2}, (1.0, 1.0))])
    two = sweep(tmp_path / "b", [({"x": 1}, (9.0, 12.0))], name="other")
    page = sweep_page(one, two)

    # 1 and 2: 1.5 +- 12.7 x 0.5; of 10.5, 14.3 %
    assert section(page, "Against other").rows == (("TTFT p99, ms", "12", "10.5", "+1.50 ± 6.35", "+14.3%", "1"),)
    assert "1 point, 2 seeds. 1 and 0 points have no partner" in section(page, "Against other").says
    assert [each.name for each in page.charts[:2]] == ["against_differences", "against_ttft_ms_p99"]
    assert [mark.label for mark in page.charts[1].panels[0].marks] == ["made", "other"]


def test_against_what_shares_nothing_pairs_nothing_and_says_so(tmp_path):
    one = sweep(tmp_path / "a", [({"x": 1}, (10.0, 14.0))])
    two = sweep(tmp_path / "b", [({"x": 1}, (9.0, 12.0))], seeds=(7, 8))
    page = sweep_page(one, two)

    assert section(page, "Against made (against)").says.startswith("No point of both has the same assignment and a com")
    assert [each.name for each in page.charts][:1] == ["against_ttft_ms_p99"]


@pytest.mark.parametrize(("key", "is_told"), [("workload.prompt_tokens.mean", True), (RATE, False), (SEQS, False)])
def test_an_axis_that_changes_the_requests_is_named(tmp_path, key, is_told):
    page = sweep_page(sweep(tmp_path / "a", [({key: 1.0}, (1.0, 2.0)), ({key: 2.0}, (1.0, 2.0))]), None)

    assert any("changes the requests themselves" in text for _, text in section(page, "Remarks").rows) is is_told


def test_a_run_that_came_out_in_two_ways_is_told(tmp_path):
    folder = sweep(tmp_path / "a", [({"x": 1}, (1.0, 2.0))])
    other = sweep(tmp_path / "b", [({"x": 1}, (1.0, 3.0))])
    shutil.copy(other / "segments" / "host-1-00000000.jsonl", folder / "segments" / "host-2-00000000.jsonl")
    page = sweep_page(folder, None)

    assert dict(section(page, "Remarks").rows)["not deterministic"].startswith("1 run came out in two ways")
    assert not page.is_good


def test_provenance_names_program_seeds_and_ids(tmp_path):
    rows = dict(section(sweep_page(sweep(tmp_path / "a", [({"x": 1}, (1.0, 2.0))]), None), "Provenance").rows)

    assert (rows["version"], rows["sources"], rows["seeds"]) == ("9.9", "abc", "5, 6")
    assert rows["runs"].startswith("2, ids ")
