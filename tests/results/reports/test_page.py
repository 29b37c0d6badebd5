"""The page, the pictures and the terminal: complete, alone, and the same for equal results."""
import builtins
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from results.fakes import MS, replicas_of, requests_of, small_run, workload_of
from results.reports.made import lay_down, sample_of
from simulator.cli import main
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run
from simulator.errors import MissingExtra
from simulator.results.figures import draw, theme
from simulator.results.latency_charts import MEASURES, latency_chart
from simulator.results.load import load_results
from simulator.results.reports.charts import charts_of
from simulator.results.reports.material import Material
from simulator.results.reports.page import page
from simulator.results.reports.shell import FIRST_LINE

EXPERIMENT = """
engine = {max_num_seqs = 4, max_model_len = 100, num_gpu_blocks = 100}
latency = {backend = "linear", base_us = 1000}
[workload]
type = "synthetic"
num_requests = 9
arrival = {process = "poisson", rate_per_s = 100.0}
prompt_tokens = {distribution = "constant", value = 20}
output_tokens = {distribution = "constant", value = 5}
[output]
iterations = false
"""
VOID = {"meta", "br", "link"}


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib", reason="pictures come with the extra `report`")


@pytest.fixture
def plotext():
    return pytest.importorskip("plotext", reason="plots in the terminal come with the extra `report`")


class Checker(HTMLParser):
    """Count what is open, and gather attributes that could ask for something."""

    def __init__(self, text):
        super().__init__()
        self.open, self.asked, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.asked += [value for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()


def test_the_page_asks_for_nothing(tmp_path, matplotlib):
    text = page(Material(lay_down(tmp_path / "a", token_times=True)))

    found = Checker(text)
    assert found.open == []
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in found.asked)
    assert not {"script", "link", "iframe", "object", "embed"} & set(found.tags)
    assert "http" not in text and "@import" not in text
    assert set(re.findall(r"url\(([^)]*)", text)) <= {f"#{name}" for name in re.findall(r'id="([^"]*)"', text)}


def test_equal_results_give_equal_bytes(tmp_path, matplotlib):
    pages = [page(Material(lay_down(tmp_path / name, iterations=False)), request="0") for name in "ab"]

    assert pages[0] == pages[1]


@pytest.mark.ci
@pytest.mark.slow
def test_equal_results_give_equal_pages_and_pictures_of_every_kind(tmp_path, matplotlib):
    charts = [charts_of(Material(lay_down(tmp_path / name, token_times=True)), request="0") for name in "ab"]

    for one, other in zip(*charts, strict=True):
        assert draw.inline_svg(one) == draw.inline_svg(other)
        for kind in draw.FORMATS if one.name in ("ttft_ms_cdf", "replicas") else ():
            assert draw.picture(one, kind) == draw.picture(other, kind)


def test_the_page_names_what_it_shows(matplotlib, tmp_path):
    text = page(Material(lay_down(tmp_path / "a", requests=True)))

    assert "SLO missed (20.00%" in text
    assert "The distribution of ITL is left out" in text
    assert "max_num_seqs = 2" in text and "9.9" in text
    assert text.count("<figure") == text.count("<svg") == text.count("<figcaption") == text.count("<h3>")
    assert "prefers-color-scheme:dark" in text and "@media print" in text


def test_colours_are_variables_in_both_themes(tmp_path, matplotlib):
    svg = draw.inline_svg(charts_of(Material(lay_down(tmp_path / "a", iterations=False)))[0])

    assert not re.findall(r"#[0-9a-f]{6}", svg)
    assert set(re.findall(r"var\(--(\w+)\)", svg)) <= set(theme.COLOURS)
    assert len({light for light, _ in theme.COLOURS.values()}) == len(theme.COLOURS)


@pytest.mark.parametrize("name", [name for name in theme.COLOURS if name not in ("paper", "faint")])
@pytest.mark.parametrize("which", [0, 1])
def test_what_is_drawn_stands_out_from_paper(name, which):
    # WCAG 2.2: 3:1 for graphics, 4.5:1 for text
    least = 3.0 if name.startswith("c") else 4.5
    assert contrast(theme.COLOURS[name][which], theme.COLOURS["paper"][which]) >= least


def contrast(one, other):
    def luminance(colour):
        parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_empty_and_interrupted_results_make_a_report(tmp_path, matplotlib):
    empty = Run(workload_of(requests_of([])), False, 0, replicas_of({"num_blocks": 9}), WeightedSamples())

    text = page(Material(lay_down(tmp_path / "a", empty, num_iterations=0)))

    assert "Incomplete: the run was interrupted" in text
    assert "Nothing ran." in text
    assert "There are no requests." in text


def test_what_a_run_is_called_is_no_markup(tmp_path, matplotlib):
    material = Material(lay_down(tmp_path / "a", iterations=False))
    material.summary["name"] = "<b>&\"x"
    material.summary["diagnosis"] = ["<script>alert(1)</script>"]

    found = Checker(page(material))

    assert found.open == [] and not {"b", "script"} & set(found.tags)


def test_names_are_drawn_as_they_are(matplotlib):
    samples = {name: sample_of(np.arange(9.0)) for name in ("$1 and $2", "_own", "模型 ☃")}

    svg = draw.inline_svg(latency_chart(MEASURES[0], samples))

    assert all(name in svg for name in samples)


def test_the_command_writes_a_page_and_replaces_only_reports(tmp_path, matplotlib, capsys):
    directory = lay_down(tmp_path / "a", iterations=False)

    assert main(["report", str(directory)]) == 0
    assert capsys.readouterr().out == f"report in {directory}/report.html\n"
    first = (directory / "report.html").read_bytes()
    assert first.startswith(FIRST_LINE.encode())
    assert main(["report", str(directory), "--quiet"]) == 0
    assert (directory / "report.html").read_bytes() == first

    (tmp_path / "notes.html").write_text("mine")
    assert main(["report", str(directory), "--out", str(tmp_path / "notes.html")]) == 2
    assert "exists and is no report" in capsys.readouterr().err
    assert (tmp_path / "notes.html").read_text() == "mine"
    assert main(["report", str(directory), "--out", str(tmp_path / "no/x.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "begins"), [
    ("png", b"\x89PNG"), ("svg", b"<?xml"), pytest.param("pdf", b"%PDF", marks=pytest.mark.slow)])
def test_pictures_lie_in_a_folder_of_the_results(tmp_path, matplotlib, kind, begins):
    directory = lay_down(tmp_path / "a", iterations=False)

    assert main(["report", str(directory), "--format", kind, "--quiet"]) == 0

    files = sorted((directory / "report").iterdir())
    assert [file.name for file in files] == [f"{name}.{kind}" for name in (
        "e2el_ms_cdf", "outcomes", "queue_ms_cdf", "tpot_ms_cdf", "ttft_ms_cdf")]
    assert all(file.read_bytes().startswith(begins) for file in files)


def test_plots_appear_in_the_terminal(tmp_path, plotext, capsys):
    assert main(["report", str(lay_down(tmp_path / "a")), "--plot", "--request", "0"]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("SLO missed")
    assert "Request 0: where its time went" in shown
    assert "TTFT: from arrival to the first token" in shown and "┤" in shown
    assert "\x1b" not in shown
    assert not (tmp_path / "a/report.html").exists()


def test_one_sample_has_an_axis_that_begins_at_0(tmp_path, plotext, capsys, monkeypatch):
    # one request, whose waits are all 0: no time is negative, and no count
    monkeypatch.setenv("COLUMNS", "80")
    requests = requests_of([(0, 0, 0, 10, 40, 100, 4, records.COMPLETED)])
    run = Run(workload_of(requests), True, 40 * MS, replicas_of({"num_blocks": 9}), WeightedSamples())
    assert main(["report", str(lay_down(tmp_path / "a", run)), "--plot"]) == 0

    shown = capsys.readouterr().out
    assert "of 1 sample" in shown
    assert not re.search(r"(^|\s)-\d", shown)
    assert max(map(len, shown.splitlines())) <= 80


def test_a_run_writes_its_report_and_overwrites_it_with_its_results(tmp_path, matplotlib, capsys):
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    command = ["run", str(tmp_path / "a.toml"), "--out", str(tmp_path / "a"), "--report"]

    assert main(command) == 0
    assert f"report in {tmp_path}/a/report.html" in capsys.readouterr().out
    first = (tmp_path / "a/report.html").read_bytes()
    assert main(["report", str(tmp_path / "a"), "--format", "svg", "--quiet"]) == 0     # a folder in the results
    assert main([*command, "--overwrite", "--quiet"]) == 0
    assert (tmp_path / "a/report.html").read_bytes() == first
    assert not (tmp_path / "a/report").exists()


def test_results_in_the_current_folder_are_replaced_with_their_pictures(tmp_path, monkeypatch):
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    command = ["run", str(tmp_path / "a.toml"), "--out", str(tmp_path / "a"), "--overwrite", "--quiet"]
    assert main(command) == 0
    (tmp_path / "a/report").mkdir()
    (tmp_path / "a/report/old.png").touch()
    monkeypatch.chdir(tmp_path / "a")

    assert main(command) == 0
    assert not (tmp_path / "a/report").exists()


def test_against_shows_both_and_their_differences(tmp_path, matplotlib):
    one, other = (lay_down(tmp_path / name, iterations=False) for name in "ab")

    text = page(Material(one), Material(other))

    assert "Against small (against)" in text
    assert re.search(r'TTFT p50, ms</th><td>17.5</td><td>17.5</td><td>0</td><td>\+0.0%', text)     # (10 + 25) / 2


def test_options_that_do_not_go_together_are_refused(tmp_path, capsys):
    directory = lay_down(tmp_path / "a")

    assert main(["report", str(directory), "--plot", "--format", "png"]) == 2
    assert "--plot: shows charts in the terminal and writes nothing" in capsys.readouterr().err
    assert main(["report", str(directory), "--request", "77"]) == 2
    assert main(["report", str(tmp_path / "none")]) == 2


def test_without_the_extra_a_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    directory = lay_down(tmp_path / "a")
    real = builtins.__import__

    def missing(name, *rest, **options):
        if name.partition(".")[0] in ("matplotlib", "plotext", "polars", "xarray"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    draw._matplotlib.cache_clear()
    result = load_results(directory)

    with pytest.raises(MissingExtra, match=r"need matplotlib: install it with pip install 'simulator\[report\]'"):
        page(Material(directory))
    assert main(["report", str(directory), "--plot"]) == 2
    assert "Charts need matplotlib" in result._repr_html_()
    with pytest.raises(MissingExtra, match="to_polars needs polars: pip install polars"):
        result.to_polars()
    with pytest.raises(MissingExtra, match="to_xarray needs xarray: pip install xarray"):
        result.to_xarray()


def test_a_notebook_shows_the_table_and_two_charts(tmp_path, matplotlib):
    shown = load_results(lay_down(tmp_path / "a", small_run()))._repr_html_()

    assert len(shown) < 60_000
    assert shown.count("<svg") == 2 and "TTFT" in shown
    assert Checker(shown).open == []
