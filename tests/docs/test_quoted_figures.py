"""Figures that comments of configs/ and pages of docs/guide quote are the results of now."""
import importlib.util
import re

import pytest

from support.pages import ROOT

SPEC = importlib.util.spec_from_file_location("quoted_figures", ROOT / "tools/quoted_figures.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)
TABLES = tool.facts()
TEXTS = {page: (ROOT / page).read_text() for page in TABLES}
FOUND = {page: tool.found_in(TEXTS[page], page, table) for page, table in TABLES.items()}
FIGURES = [figure for _, figures in FOUND.values() for figure in figures]
RUNS = list(dict.fromkeys(figure.run for figure in FIGURES))
MEASURED = re.compile(rf"(?<![\w.,*-]){tool.NUMBER} (?:ms|s|%)(?![\w/])")
PLAN = tool.Run("configs/linear.toml", False, "{}", (), (), False)


@pytest.mark.parametrize("run", [
    pytest.param(run, id=str(run)[:100], marks=[
        *[pytest.mark.ci, pytest.mark.slow] * (run.is_long or run.is_nightly), *[pytest.mark.night] * run.is_nightly])
    for run in RUNS])
def test_figures_are_the_results_of_now(run):
    results = tool.run(run)

    stale = [f"{figure.page}: {figure.written} is now {new}" for figure in FIGURES
             if figure.run == run and (new := figure.now(results)) != figure.written]
    assert not stale, "run `python tools/quoted_figures.py`"


@pytest.mark.parametrize("page", TABLES)
def test_quotes_stand_in_their_page_once(page):
    assert not [quote.words for quote in FOUND[page][0] if quote.start < 0]
    assert {figure.run for figure in FOUND[page][1]} >= {
        run for name, run in tool.runs_of(page, TABLES[page]).items() if name != "here"}


@pytest.mark.parametrize("page", [*(f"configs/{path.name}" for path in sorted((ROOT / "configs").glob("*.toml"))),
                                  *(page for page in TABLES if page.endswith(".md"))])
def test_times_and_shares_in_comments_are_quoted_or_given(page):
    text = (ROOT / page).read_text()
    _, figures = FOUND.get(page, ((), ()))
    held = {figure.start for figure in figures}
    for words in TABLES.get(page, {}).get("given", ()):
        place = re.search(tool.pattern_of(words), text)
        assert place, f"figures.toml gives words that {page} lacks: {words}"
        held.update(range(*place.span()))

    prose = text if page.endswith(".md") else re.sub(r"^[^#\n].*", lambda line: " " * len(line[0]), text, flags=re.M)
    assert not [found[0] for found in MEASURED.finditer(prose) if found.start() not in held]


@pytest.mark.parametrize(("written", "value", "slot", "now"), [
    ("217", 228.6, "a.b", "229"), ("9,825", 12345.6, "a.b", "12,346"), ("1058", 12345.6, "a.b", "12346"),
    ("9.8", 58_960.0, "a.b / 1000", "59.0"), ("62", 0.6251, "a.b * 100", "63"), ("0", 7, "a.b+a.b", "14")])
def test_a_figure_is_as_precise_as_it_is_written(written, value, slot, now):
    _, (figure,) = tool.found_in(f"It is {written} here.", "p", {"quotes": [f"is {{{slot}}} here"]})

    assert figure.now({"a": {"b": value}}) == now


def test_words_are_found_across_lines_of_a_comment_and_once():
    text = "# The p99 is\n# 217 ms, then\n# 3 s. Once, once\n"
    table = {"quotes": ["p99 is {x} ms, then {other y} s", "nce", "no"], "runs": {"other": {"set": {"seed": 2}}}}
    quotes, figures = tool.found_in(text, "p.toml", table)

    assert [quote.start >= 0 for quote in quotes] == [True, False, False]
    assert [(figure.written, text[figure.start:][:3], figure.run.changes) for figure in figures] == [
        ("217", "217", "{}"), ("3", "3 s", '{"seed": 2}')]


def test_new_figures_keep_the_columns_of_a_table():
    text = "#  before    9 ms   1,000 ms\n#  then   10 ms\n"
    _, figures = tool.found_in(text, "p", {"quotes": ["before {a} ms {b} ms then {c} ms"]})

    assert tool.corrected(text, zip(figures, ("123", "7", "9.5"), strict=True)) == (
        "#  before  123 ms       7 ms\n#  then  9.5 ms\n")


def test_words_with_names_are_repeated_for_each():
    table = {"quotes": [{"words": "| {each} | {v {each}.ttft_ms.p50} |", "each": ["a", "b"]}],
             "runs": {"v": {"experiment": "configs/compare.toml"}}}

    _, (first, second) = tool.found_in("| a | 5 |\n| b | 7 |\n", "page.md", table)

    assert (first.written, first.metric, second.metric) == ("5", "a.ttft_ms.p50", "b.ttft_ms.p50")
    assert second.now({"b": {"ttft_ms.p50": 8.1}}) == "8"


@pytest.mark.parametrize(("path", "value"), [
    ("a.b", 1), ("a.b.c", 2), ("list.1.x", 4), ("list.sum.x", 7)])
def test_a_path_leads_through_keys_with_dots_and_lists(path, value):
    results = {"a": {"b.c": 2, "b": 1}, "list": [{"x": 3}, {"x": 4}]}

    assert tool.at(results, path) == value


@pytest.mark.parametrize("path", ["a.none", "a.missing", "a.b.deeper"])
def test_a_path_that_leads_nowhere_is_refused(path):
    with pytest.raises(KeyError, match=path.rpartition(".")[2]):
        tool.at({"a": {"none": None, "b": 1}}, path)


def test_keys_may_be_set_within_lists_and_left_out():
    results = tool.run(PLAN._replace(changes='{"workload.num_requests": 5}', without=("engine.max_num_seqs",)))

    assert results["requests"]["completed"] == 5
    assert tool.last_of({"a": [{"b": {"c": 1}}]}, "a.0.b.c") == ({"c": 1}, "c")


def test_a_page_without_quotes_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["quoted_figures.py", "configs/llumnix.toml", "llumnix.toml"])
    with pytest.raises(SystemExit):
        tool.main()

    assert capsys.readouterr().err.endswith("figures.toml lists no quotes of llumnix.toml\n")


def test_the_tool_writes_figures_of_now(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("Of 9,999 requests 3 % wait.\n")
    tables = {str(page): {"quotes": ["Of {requests.injected} requests", "all wait"],
                          "runs": {"here": {"experiment": "configs/linear.toml", "set": {"workload.num_requests": 5}}}}}
    monkeypatch.setattr(tool, "facts", lambda: tables)
    monkeypatch.setattr("sys.argv", ["quoted_figures.py"])

    assert tool.main() == 1
    assert page.read_text() == "Of 5 requests 3 % wait.\n"
    assert capsys.readouterr().out == (
        f"{page}: not there, or more than once: all wait\n"
        f"{page}:1: 9,999 is now 5: requests.injected of configs/linear.toml workload.num_requests=5\n")
