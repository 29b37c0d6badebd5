"""The report of a calibration, of files whose numbers are worked by hand."""
import json

import pytest

from results.reports.browser import needs_browser, shown
from simulator.study.reports.calibration import calibration_page
from simulator.study.reports.calibrations import errors_of, paired
from simulator.study.reports.measured import Measured
from simulator.study.reports.page import html_of
from study.reports.test_sweep_report import chart, section

LEVELS = ("mean", "p50", "p90", "p95", "p99")
# the example of the page: measured 100 200 300 400, predicted 110 190 330 420
REQUESTS = ((100, 110), (200, 190), (300, 330), (400, 420))
COLUMNS = ("data_set,held_out,request_id,measured_ttft_s,simulated_ttft_s,measured_tpot_s,simulated_tpot_s,"
           "measured_e2el_s,simulated_e2el_s")


def grade(mape=0.075, percent=5.0, floor=0.02):
    return {"n": 4, "workload_level": {level: {"real": 250.0, "sim": 262.5, "error": 12.5, "percent": percent}
                                       for level in LEVELS},
            "request_level": {"mape": mape, "median_ape": 0.075, "pearson_r": 0.994542, "bias": 0.05,
                              "bias_direction": "over-predict", "quality": "excellent", "measured_zero": 0},
            "ks": 0.25, "wasserstein_over_mean": 0.07,
            "noise_floor": floor and dict.fromkeys((*LEVELS, "ks", "wasserstein_over_mean"), floor),
            "within_noise": floor and dict.fromkeys((*LEVELS, "ks", "wasserstein_over_mean"), False)}


def side(mape):
    counts = {"measured": 5, "matched": 4, "failed": 1, "unmatched": 0, "mismatched_tokens": 0}
    return {"mape": mape, "median_ape": 0.08, "ttft": grade(), "tpot": None, "e2el": grade(floor=None), "step": None,
            "counts": counts}


CONTENT = {
    "schema": 1, "question": "0123456789abcdef", "name": "made", "level": "requests",
    "data_sets": [{"name": "w7", "held_out": False, "requests": 4, "steps": None},
                  {"name": "w8", "held_out": True, "requests": 4, "steps": 7}],
    "coefficients": {
        "latency.base_us": {"value": 100.0, "low": 90.0, "high": 120.0, "identified": True, "reason": None,
                            "level": "requests"},
        "latency.per_sequence_us": {"value": 0.0, "low": 0.0, "high": 5.0, "identified": False,
                                    "reason": "its interval holds 0", "level": "requests"}},
    "objective": 0.1, "training": side(0.05), "held_out": side(0.09), "transfers": True, "notes": ["a note"]}


def made(folder, requests=REQUESTS, **changed):
    """Write the files of a calibration; return its directory."""
    folder.mkdir()
    (folder / "calibration.json").write_text(json.dumps(CONTENT | changed))
    rows = [f"{name},{held},{number},{real / 1000},{sim / 1000},,,{real / 500},{sim / 500}"
            for name, held in (("w7", "false"), ("w8", "true")) for number, (real, sim) in enumerate(requests)]
    (folder / "pairs.csv").write_text("\n".join((COLUMNS, *rows, "")))
    return folder


def test_the_held_out_error_is_the_headline(tmp_path):
    page = calibration_page(made(tmp_path / "a"), None)

    assert page.says == "Held out: MAPE of requests 9.0%, median 8.0%; training: 5.0%; transfers."
    assert page.more == "1 of 2 fitted values is not identified. Held out: TTFT excellent, E2EL excellent."
    assert page.is_good


def test_what_does_not_transfer_and_what_is_not_held_out_are_said(tmp_path):
    assert calibration_page(made(tmp_path / "a", transfers=False), None).says.endswith("; does not transfer.")
    alone = calibration_page(made(tmp_path / "b", held_out=None, transfers=None), None)
    assert alone.says == ("Nothing was held out: MAPE of requests that were fitted to 5.0%; how it predicts others is "
                          "not known.")
    assert not alone.is_good


def test_a_poor_prediction_is_marked(tmp_path):
    held = side(0.6)
    held["ttft"]["request_level"]["quality"] = "poor"

    assert not calibration_page(made(tmp_path / "a", held_out=held), None).is_good


def test_a_comparison_has_no_fitted_values(tmp_path):
    page = calibration_page(made(tmp_path / "a", coefficients={}), None)

    assert page.says == "Held out: MAPE of requests 9.0%, median 8.0%; the others: 5.0%."
    assert section(page, "Fitted").says.startswith("Nothing was fitted")


def test_a_fit_that_was_stopped_says_incomplete(tmp_path):
    (tmp_path / "evaluations.jsonl").write_text('{"question": "a"}\n{"values": {}}\n{"values": {}}\n')

    assert calibration_page(tmp_path, None).says == "Incomplete: the fit has not come to an end; 2 evaluations so far."


def test_fitted_values_have_intervals_and_what_is_not_identified_has_its_reason(tmp_path):
    page = calibration_page(made(tmp_path / "a"), None)

    assert section(page, "Fitted").rows == (("latency.base_us", "100", "90", "120", "yes", "requests"),
                                            ("latency.per_sequence_us", "0", "0", "5", "no", "requests"))
    assert section(page, "Not identified").rows == (("latency.per_sequence_us", "its interval holds 0"),)
    (mark,) = chart(page, "coefficients").panels[0].marks
    assert (mark.names, mark.lows, mark.highs) == (("base_us",), (90.0,), (120.0,))
    assert "per_sequence_us: fitted as 0" in chart(page, "coefficients").says


def test_predicted_stands_against_measured(tmp_path):
    page = calibration_page(made(tmp_path / "a"), None)
    training, held, equal = chart(page, "scatter_ttft").panels[0].marks

    assert (held.label, held.x.tolist(), held.y.tolist()) == ("held out", [100, 200, 300, 400], [110, 190, 330, 420])
    assert (training.label, equal.label, equal.x.tolist()) == ("training", "equal", equal.y.tolist())
    assert "100% of 4 requests are predicted within 20 %" in chart(page, "scatter_ttft").says
    quantiles = chart(page, "quantiles_ttft").panels[0].marks[0]
    assert (quantiles.x[50], quantiles.y[50]) == (250, 260)         # p50 250 and 260, p90 370 and 393
    assert (quantiles.x[90], quantiles.y[90]) == pytest.approx((370, 393))
    measured, predicted = chart(page, "distribution_ttft").panels[0].marks
    assert (measured.label, predicted.label) == ("measured", "predicted")
    assert "at most 25.0% apart" in chart(page, "distribution_ttft").says           # KS 0.25
    assert not [each for each in page.charts if each.name.endswith("_tpot")]        # nobody measured it


def test_errors_stand_before_the_noise_of_what_was_measured(tmp_path):
    page = calibration_page(made(tmp_path / "a"), None)
    found = chart(page, "errors_held_out")
    (mark,) = found.panels[0].marks

    # TTFT: 5 % against a noise of 2 %; of E2EL the noise is not known
    assert mark.values == (5.0,) * 10 and mark.highs[:5] == (2.0,) * 5 and mark.highs[5] != mark.highs[5]
    assert "5 of 10 errors lie beyond it" in found.says


def test_what_became_of_the_requests_is_counted(tmp_path):
    rows = section(calibration_page(made(tmp_path / "a"), None), "Requests").rows

    assert rows == (("held out", "5", "4", "1", "0", "0"), ("training", "5", "4", "1", "0", "0"))


def test_errors_of_the_same_requests_are_paired(tmp_path):
    one, two = made(tmp_path / "a"), made(tmp_path / "b", ((100, 120), (200, 220), (300, 330)), name="other")
    own, others = (errors_of(Measured(each / "pairs.csv"), "ttft", True) for each in (one, two))
    found, count = paired(own, others)

    # 10, 5, 10 less 20, 10, 10
    assert count == 3 and found.mean == pytest.approx(-5.0)
    page = calibration_page(one, two)
    (rows,) = [each.rows for each in page.before if each.title == "Against other: errors"]
    assert rows[0][-2:] == ("3", "1 and 0") and chart(page, "against_ttft").title == "TTFT: errors of both, held out"


@pytest.mark.ci
@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [1200, 500])
def test_no_text_covers_another(tmp_path, width):
    pytest.importorskip("matplotlib", reason="pictures come with the extra `report`")
    two = made(tmp_path / "b", name="another_calibration_with_a_long_name")
    text = html_of(calibration_page(made(tmp_path / "a"), two))

    assert shown(text, tmp_path, 0, width) == ["rgb(21, 24, 28)", 0, True, True, []]
