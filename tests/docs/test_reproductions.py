"""Published figures: each experiment runs in small with its recorded result, and the page shows the whole results."""
import importlib.util
import json

import pytest

from support.pages import ROOT

SPEC = importlib.util.spec_from_file_location("reproduce", ROOT / "tools/reproduce.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)
FIGURES = tool.figures()
RESULTS = json.loads(tool.RESULTS.read_text())


def ours(name, size):
    if tool.needs_shared(FIGURES[name]) and not tool.SHARED.is_dir():
        pytest.skip(f"needs {tool.SHARED}")
    return tool.measured(FIGURES[name], size == "small")


@pytest.mark.parametrize("name", FIGURES)
def test_figure_runs_in_small_with_the_recorded_result(name):
    # A price that changes moves them: then `python tools/reproduce.py` writes all anew, in a minute.
    assert ours(name, "small") == pytest.approx(RESULTS[name]["small"], rel=0.01), "run `python tools/reproduce.py`"


@pytest.mark.ci
@pytest.mark.night
@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_the_result_of_now(name):
    assert ours(name, "whole") == pytest.approx(RESULTS[name]["whole"], rel=0.01), "run `python tools/reproduce.py`"


def test_page_is_that_of_the_recorded_results():
    assert tool.PAGE.read_text() == tool.page(FIGURES, RESULTS)


def test_each_number_has_its_source_and_each_that_does_not_come_out_its_reason():
    for name, figure in FIGURES.items():
        assert figure["source"] and figure["url"].startswith("https://"), name
        for number in figure["numbers"]:
            assert number["published"] > 0 and 0 < number["tolerance"] <= 0.3, name
            assert tool.verdict(number, RESULTS[name]["whole"]) != "no" or number.get("reason"), number["what"]
            assert "unknown" not in number or number.get("bounds") or len(figure["seeds"]) > 1, number["what"]


def test_each_experiment_of_the_folder_belongs_to_a_figure():
    used = {run["file"] for figure in FIGURES.values() for run in figure["runs"].values() if "file" in run}
    assert used == {path.name for path in tool.FOLDER.glob("*.toml")} - {"published.toml"}
    assert len(FIGURES) >= 20


def test_a_formula_computes_with_the_results_of_runs():
    results = {"a": {"x": {"p.q": 6, "list": [1, 8]}}, "b": {"answer": 4.0}}

    assert tool.value_of("-({a x.p.q} + {a x.list.1}) / {b answer} * 2 - 1", results) == -8


@pytest.mark.parametrize(("formula", "error"), [("{a y}", KeyError), ("{a x}", KeyError), ("{b x} ** 2", KeyError),
                                                ("2 ** 3", KeyError), ("print(1)", ValueError)])
def test_a_formula_that_cannot_be_computed_is_refused(formula, error):
    with pytest.raises(error):
        tool.value_of(formula, {"a": {"x": None}})


def test_a_published_number_is_in_range_where_what_is_unknown_reaches_it():
    number = {"what": "x", "published": 4.0, "tolerance": 0.1, "unknown": "y"}
    ends = {"x, least": 3.0, "x, most": 6.0}

    assert tool.verdict(number, {"x": 4.3} | ends) == "yes"
    assert tool.verdict(number, {"x": 5.0} | ends) == "in range"
    assert tool.verdict(number | {"published": 9.0}, {"x": 5.0} | ends) == "no"
    assert tool.verdict({"what": "x", "published": 4.0, "tolerance": 0.1}, {"x": 5.0}) == "no"


def test_a_number_is_the_mean_over_seeds_and_its_range_that_of_bounds_and_seeds(monkeypatch):
    number = {"what": "x", "formula": "{a v}", "unknown": "y", "bounds": ["{a v} * 3"]}
    figure = {"seeds": [2, 4], "runs": {"a": {"file": "f"}}, "numbers": [number]}
    monkeypatch.setattr(tool, "result_of", lambda run, overrides: {"v": overrides["seed"]})

    assert tool.measured(figure, is_small=False) == {"x": 3.0, "x, least": 2.0, "x, most": 12.0}
    assert tool.measured(figure, is_small=True) == {"x": 2.0, "x, least": 2.0, "x, most": 6.0}


def test_overrides_are_words_of_the_command_line():
    assert tool.settings_of({"pools": [{"name": "p", "slo": {"ttft_ms.p90": {"max": 1e6}}}], "on": True}) == [
        '--set=pools=[{"name" = "p", "slo" = {"ttft_ms.p90" = {"max" = 1000000.0}}}]', "--set=on=true"]


@pytest.mark.parametrize(("times_s", "quality"), [
    ([0.2, 1.9, 3.0], 1.0),             # each when it is wanted, at 1, 2 and 3 s, or before
    ([2.0, 2.0, 2.0], 0.5),             # read at 2, 3, 4 s: 1 s late each, of 3, 2 and 1 s until the end
    ([1.0, 4.0, 4.0], 1 - 4 / 9),       # read at 1, 4, 5 s: 0, 2 and 2 s late, of 4, 3 and 2 s
    ([], 1.0),
])
def test_quality_of_experience_is_the_area_between_tokens_wanted_and_read(times_s, quality):
    assert tool.quality(tool.np.array(times_s), expected_ttft_s=1.0, tokens_per_s=1.0) == pytest.approx(quality)


def test_a_study_is_one_by_the_file_that_it_extends():
    assert tool.study_kind(tool.FOLDER / "sarathi_articles.toml") == "capacity"
    assert tool.study_kind(tool.FOLDER / "blis_pressure.toml") is None
