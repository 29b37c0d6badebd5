"""The summary table."""

import pytest

from results.fakes import bounds_of, replicas_of, requests_of, small_run, workload_of
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain.run import Run
from simulator.results import notes, summary_table
from simulator.results.report import milliseconds
from simulator.results.summary import summary_of


def test_the_table_fits_a_screen_and_shows_what_matters():
    run = small_run(complete=False)
    run.diagnosis.append("replica 0 stopped")

    summary = summary_of(run, "small", 42, bounds_of(ttft_ms=25.0))
    text = summary_table(summary)

    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "small, seed 42, INCOMPLETE"
    assert "2 of 5 completed, 1 rejected, 1 waiting, 1 running" in text
    assert "0.040 s, 3 iterations, 1 preemption\n" in text
    assert "50.00 requests/s, 125.0 output tokens/s, 3,875.0 tokens/s" in text
    assert "goodput      50.00 requests/s" in text
    assert "100 blocks, 20.0% used on average, 30.0% at the peak" in text
    assert "20.0% of 170 prompt tokens found" in text
    assert next(line for line in lines if line.startswith("E2EL")).split() == [
        "E2EL", "32.50", "32.50", "38.50", "39.25", "39.85", "40.00"]
    assert "stopped" not in text       # such sentences go where diagnostics go, stderr
    assert "load         133.33 requests/s offered: too short to tell, 40 requests would do" in text    # 5 in 30 ms
    assert "max_model_len" not in text
    assert lines[-1] == "of completed requests; ITL also holds the gaps of 1 other"
    assert notes(summary) == ["replica 0 stopped"]


def test_columns_stay_apart_however_long_the_numbers_are():
    summary = summary_of(small_run(), "small", 42, bounds_of())
    summary["e2el_ms"] = dict.fromkeys(summary["e2el_ms"], 123_456_789_012.0)

    line = next(line for line in summary_table(summary).splitlines() if line.startswith("E2EL"))

    assert line.split() == ["E2EL", *["1.2346e+11"] * 6] and len(line) <= 80


def test_an_empty_run_has_a_table():
    run = Run(workload_of(requests_of([])), True, 0, replicas_of({}), WeightedSamples())

    text = summary_table(summary_of(run, "empty", 0, bounds_of()))

    assert "0 of 0 completed" in text
    assert next(line for line in text.splitlines() if line.startswith("TTFT")).split() == ["TTFT", *"------"]


def test_what_max_model_len_cut_and_what_failed_is_in_the_table():
    summary = summary_of(small_run(), "small", 42, bounds_of())
    summary["requests"] |= {"failed": 1, "length_capped": 2}

    assert "1 rejected, 1 failed, 1 waiting, 1 running, 2 cut at max_model_len" in unwrapped(summary)


def test_overload_is_named_with_what_it_costs():
    summary = summary_of(small_run(), "small", 42, bounds_of())
    summary |= {"verdict": "overloaded", "in_system": {"mean": 50.0, "peak": 100, "growth_per_s": 2.5}}

    assert "requests/s offered: overloaded, 2.50 more requests in the system each second " in unwrapped(summary)


def test_a_burst_has_no_rate():
    summary = summary_of(small_run(), "small", 42, bounds_of()) | {"offered_throughput": None}

    assert "load         all at once: too short to tell, 40 requests would do\n" in summary_table(summary)


def test_a_fact_that_is_too_long_for_a_screen_goes_on_in_the_next_line():
    summary = summary_of(small_run(), "small", 42, bounds_of()) | {"unserved": " ".join(["rejected"] * 20)}

    lines = summary_table(summary).splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[2:5] == ["unserved     " + " ".join(["rejected"] * 7), *[" " * 13 + " ".join(["rejected"] * 7)],
                          " " * 13 + " ".join(["rejected"] * 6)]


def unwrapped(summary):
    return summary_table(summary).replace("\n" + " " * 13, " ").replace("\n", " ")


@pytest.mark.parametrize(("ms", "text"), [
    (0.0, "0.00"), (999_999.99, "999,999.99"), (999_999.997, "1,000,000"), (1_827_496.86, "1,827,497"),
    (999_999_999.4, "999,999,999"), (999_999_999.7, "1.0000e+09"), (9.2e12, "9.2000e+12")])
def test_latencies_of_hours_and_years_fit_their_columns(ms, text):
    assert milliseconds(ms) == text
    assert len(text) <= 11
