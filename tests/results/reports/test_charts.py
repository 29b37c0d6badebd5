"""Charts say what their data hold."""
import re

import numpy as np
import pytest

from results.fakes import requests_of, small_run
from results.reports.made import ITERATIONS, REPLICAS, RESOLVED, counted, iterations_of, lanes_of, lay_down, sample_of
from simulator.results.figures.chart import Mark, Rule, number, table_of
from simulator.results.figures.draw import inline_svg
from simulator.results.latency_charts import MEASURES, latency_chart
from simulator.results.load_charts import heat_maps, timeline, utilisation
from simulator.results.reports.batch_charts import batch_histograms, durations, outcomes
from simulator.results.reports.charts import charts_of
from simulator.results.reports.material import Material
from simulator.results.request_passes import bin_width_s

TTFT = MEASURES[0]


def test_percentiles_are_marked_and_the_slo_is_a_line():
    chart = latency_chart(TTFT, {"a": sample_of(np.arange(101.0), 80.0)})

    marks = chart.panels[0].marks
    assert [(mark.x, mark.y, mark.text) for mark in marks if isinstance(mark, Mark)] == [
        (50, 50, "p50 50 ms"), (90, 90, "p90 90 ms"), (99, 99, "p99 99 ms")]
    assert [mark for mark in marks if isinstance(mark, Rule)] == [Rule(80.0, "SLO 80 ms")]
    assert "Half take up to 50 ms, 90 % up to 90 ms, 99 % up to 99 ms; the longest of 101 samples 100 ms." in chart.says
    assert "80.20% keep the SLO of 80 ms." in chart.says            # 0 to 80 of 101


def test_what_results_are_compared_with_is_judged_by_their_bounds(tmp_path):
    other = Material(lay_down(tmp_path / "b", resolved=RESOLVED.replace("ttft_ms = 20.0", "ttft_ms = 1.0")))
    chart = charts_of(Material(lay_down(tmp_path / "a")), other)[0]

    assert chart.says.count("50.00% keep the SLO of 20 ms.") == 2       # TTFT 10 and 25 ms, both runs


def test_what_lies_beyond_the_axis_is_said():
    chart = latency_chart(TTFT, {"a": sample_of(np.r_[np.ones(999), 1000.0], 50.0)})

    assert chart.x_range[1] < 2
    assert "the longest of 1,000 samples 1,000 ms, beyond the axis" in chart.says
    assert "keep the SLO of 50 ms, which lies beyond the axis" in chart.says
    assert not [mark for mark in chart.panels[0].marks if isinstance(mark, Rule)]


def test_two_runs_are_two_lines_of_different_dash():
    samples = {name: sample_of(np.arange(count)) for name, count in (("one", 9), ("two", 5), ("none", 0))}
    chart = latency_chart(TTFT, samples)

    lines = [mark for mark in chart.panels[0].marks if hasattr(mark, "steps")]
    assert [(line.label, line.style) for line in lines] == [("one", 0), ("two", 1)]
    assert "two: half take up to 2 ms" in chart.says
    assert chart.says.endswith("none has no samples.")


def test_samples_are_those_of_the_summary(tmp_path):
    material = Material(lay_down(tmp_path / "a", token_times=True))

    for measure in MEASURES[:2] + MEASURES[3:]:
        values, shares = material.sample(measure.key).quantiles()
        assert np.interp(0.99, shares, values) == pytest.approx(material.summary[measure.key]["p99"])
    # tokens at 10, 30, 35, 40 of request 0, 30 of 1, twice 50 of 2
    assert material.gaps.quantiles()[0].tolist() == [0, 5, 5, 20]


def test_the_timeline_tells_its_peaks():
    chart = timeline(lanes_of(ITERATIONS), counted(small_run().workload.requests))

    assert chart.says.startswith("At most 3 run at once (at 0.015 s) and 1 wait (at 0.01 s); at most 54.5 % of the KV ")
    assert [panel.y_label for panel in chart.panels] == ["running", "waiting", "KV, %", "requests/s"]


def test_bins_are_a_second_or_as_many_as_keep_them_few():
    assert [bin_width_s(duration) for duration in (0, 1000, 1001, 5000, 10**6, 1.5e6)] == [1, 1, 2, 5, 1000, 2000]

    edges_s, rate = counted(small_run().workload.requests, 3_500_000_000).completions()
    assert edges_s.tolist() == [0, 1, 2, 3, 4]
    assert rate.tolist() == [2, 0, 0, 0]


def test_replicas_are_told_apart():
    lanes = lanes_of(ITERATIONS)

    # 30 and 10 ms of 50
    assert utilisation(lanes).says.startswith("Replicas compute 40 % of the time on average; the least busy one 20 %")
    assert "largest on replica 0" in heat_maps(lanes).says
    assert [panel.marks[0].values.shape for panel in heat_maps(lanes).panels] == [(2, 120)] * 3


@pytest.mark.parametrize(("count", "ticks"), [(1, "0 0 0"), (2, "0 1 0 1 0"), (4, "0 1 2 3 0 1 2 3"),
                                              (50, "0 15 30 45 0 15 30 45")])
def test_rows_of_a_heat_map_have_whole_numbers(count, ticks):
    pytest.importorskip("matplotlib", reason="pictures are in the report extra")
    lanes = lanes_of(ITERATIONS[ITERATIONS["replica"] < count], np.repeat(REPLICAS, 25)[:count])

    labels = re.findall(r">(-?[\d.,]+)</text>", inline_svg(heat_maps(lanes)))

    assert labels[:len(ticks.split())] == ticks.split()         # then those of time


@pytest.mark.parametrize(("requests", "says"), [
    (None, "no batch leaves a request waiting"),
    (requests_of([(0, 0, 95, 100, 120, 5, 2, 3)]), "the longest wait for the next one is 95 ms"),
    (requests_of([(0, 5, 5, 100, 120, 5, 2, 3)]), "no request waits")])
def test_a_queue_that_each_batch_empties_is_no_queue_without_a_wait(requests, says):
    lanes = lanes_of(iterations_of((0, 0, 10, 8, 0, 0, 1, 9)), REPLICAS[:1])
    chart = timeline(lanes, None if requests is None else counted(requests))

    assert says in chart.says


def test_many_replicas_are_shown_as_groups():
    chart = heat_maps(lanes_of(ITERATIONS, np.repeat(REPLICAS, 50)))

    assert chart.panels[0].marks[0].values.shape == (50, 120)
    assert "mean of 2 neighbours" in chart.says
    assert chart.panels[0].y_label == "replica / 2"


def test_durations_are_told_by_what_is_in_a_batch():
    chart = durations(lanes_of(ITERATIONS))

    assert chart.says.startswith(
        "1 iteration of decodes alone: 10 ms (median); 3 iterations with prompts: 10 ms (median). Of each")
    assert [row[1] for row in chart.table.rows] == ["1"] * 4            # 2, 8, 11 and 64 tokens


def test_histograms_count_iterations():
    size, tokens = batch_histograms(lanes_of(ITERATIONS))

    assert size.panels[0].marks[0].heights.tolist() == [0, 2, 2]        # 1 and 2 requests
    assert sum(tokens.panels[0].marks[0].heights) == 4
    assert tokens.says.endswith("the most is 64.")


def test_outcomes_are_counted_by_name():
    chart = outcomes(counted(small_run().workload.requests))

    assert chart.says == "2 of 6 requests completed."
    assert dict(chart.table.rows) == {"pending": "1", "waiting": "1", "running": "1", "completed": "2", "rejected": "1"}


def test_charts_without_their_table_are_left_out_with_a_sentence(tmp_path):
    material = Material(lay_down(tmp_path / "a", requests=False, iterations=False))

    assert charts_of(material) == []
    assert [sentence.partition(":")[0] for sentence in material.absent.values()] == [
        "Charts of requests are left out", "The distribution of ITL is left out",
        "Charts over time and of batches are left out"]


def test_every_chart_has_title_sentence_and_data(tmp_path):
    charts = charts_of(Material(lay_down(tmp_path / "a", token_times=True)), request="0")

    assert [chart.name for chart in charts] == [
        "request_0", "ttft_ms_cdf", "tpot_ms_cdf", "itl_ms_cdf", "e2el_ms_cdf", "queue_ms_cdf", "outcomes",
        "utilisation", "timeline", "replicas", "iterations", "batch_size", "batch_tokens"]
    assert all(chart.title and chart.says.endswith(".") and chart.table.rows for chart in charts)


def test_long_tables_are_thinned_to_their_ends():
    rows = table_of(("a",), np.arange(1000)).rows

    assert (len(rows), rows[0], rows[-1]) == (60, ("0",), ("999",))


def test_numbers_have_three_digits():
    assert [number(value) for value in (0.01234, 1.234, 12.34, 1234.5, 7, None)] == [
        "0.0123", "1.23", "12.3", "1,234", "7", "-"]
