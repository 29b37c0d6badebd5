"""Reports of capacity searches and tuning studies, of what the commands leave."""
import csv
import json
import shutil

import pytest

from simulator import cli
from simulator.results.figures.chart import Labelled, Level, Points
from simulator.study.reports.answers import paired, pairs_of
from simulator.study.reports.capacity import capacity_page
from simulator.study.reports.tune import tune_page
from study.capacity.servers import SERVER, STUDY, asked, written
from study.capacity.test_mix import MIX, POOLS
from study.reports.test_sweep_report import chart, section

TUNE = """
[study]
kind = "tune"
[study.axes]
"topology.tensor_parallel" = [1, 2, 3]
"engine.max_num_seqs" = [1, 4, 16]
[study.objectives]
output_throughput = "max"
"ttft_ms.mean" = "min"
[study.slo]
"ttft_ms.p99" = {max = 400.0}
backlog = "any"
[study.limits]
gpus = 2
"""
EXPERIMENT = """
seed = 5
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "roofline"}
[workload]
type = "synthetic"
num_requests = 60
arrival = {process = "poisson", rate_per_s = 20.0}
prompt_tokens = {distribution = "uniform", min = 200, max = 1500}
output_tokens = {distribution = "uniform", min = 20, max = 200}
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Return the directory of a search: constant arrivals at a server of 1,000 requests a second."""
    folder = tmp_path_factory.mktemp("capacity")
    status, content = asked(written(folder, SERVER + STUDY), folder / "out")
    assert status == 0
    return folder / "out", content


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Return the directory of a tuning study, some of whose candidates miss the bound, some are no layouts."""
    folder = tmp_path_factory.mktemp("tune")
    (folder / "tune.toml").write_text(EXPERIMENT + TUNE)
    assert cli.main(["tune", str(folder / "tune.toml"), "--out", str(folder / "out"), "--jobs", "1", "--quiet"]) == 0
    return folder / "out"


def test_every_probe_of_a_search_has_its_verdict(searched):
    directory, content = searched
    page = capacity_page(directory, None)
    probes = content["probes"] + content["repeats"]
    found = chart(page, "search_0")

    assert len(section(page, "Probes").rows) == len(probes)
    assert [row[2].removesuffix(" (new seeds)") for row in section(page, "Probes").rows] == [
        probe["verdict"] for probe in probes]
    assert {row[3] for row in section(page, "Probes").rows} == {"stable", "growing"}
    drawn = {mark.label: mark.x.tolist() for mark in found.panels[0].marks if isinstance(mark, Points)}
    assert drawn["pass"] == [number for number, probe in enumerate(probes, 1) if probe["verdict"] == "pass"]
    assert [mark.y for mark in found.panels[0].marks if isinstance(mark, Level)] == [content["answer"]]


def test_bounds_are_drawn_with_their_limits(searched):
    directory, content = searched
    page = capacity_page(directory, None)
    found = chart(page, "bounds_0")

    assert content["slo"] == {"ttft_ms.p99": {"max": 10.0}, "backlog": "stable"}
    assert [panel.y_label for panel in found.panels] == ["served, req/s", "TTFT p99, ms"]       # no [slo]: no goodput
    assert [(mark.y, mark.text) for mark in found.panels[1].marks if isinstance(mark, Level)] == [(10.0, "at most 10")]
    assert "What must hold: ttft_ms.p99 at most 10; backlog stable." in section(page, "Answer").says


def test_the_verdict_is_the_answer(searched):
    directory, content = searched
    page = capacity_page(directory, None)

    assert page.says.startswith("workload.arrival.rate_per_s: 1,000") or page.says.startswith(
        "workload.arrival.rate_per_s: 99")
    assert page.says.endswith(", repeated with new seeds." if content["repeated_with_new_seeds"]
                              else ", not repeated with new seeds.")
    assert page.is_good is content["repeated_with_new_seeds"]


def test_nothing_passes_is_said(tmp_path):
    status, _ = asked(written(tmp_path, SERVER + STUDY), tmp_path / "out", "--set",
                      "study.slo={\"ttft_ms.p99\" = {max = 0.5}}")
    page = capacity_page(tmp_path / "out", None)

    assert status == 3 and not page.is_good
    assert page.says == "Nothing passes: even workload.arrival.rate_per_s = 10 misses the bounds."


def test_a_search_that_was_stopped_says_incomplete(searched, tmp_path):
    directory = shutil.copytree(searched[0], tmp_path / "out")
    (directory / "capacity.json").unlink()
    page = capacity_page(directory, None)

    assert page.says.startswith("Incomplete: the search has not come to an end; ") and not page.is_good
    assert section(page, "Runs that").says == "None: all runs are done."


def test_answers_are_paired_by_the_seeds_of_both():
    own = {"name": "a", "vary": "x", "answer": 10.0, "by_seed": {"1": 9.0, "2": 11.0, "3": 10.0}}
    other = {"name": "b", "vary": "x", "answer": 9.0, "by_seed": {"2": 10.0, "1": 8.0, "9": 3.0}}
    (pair,) = pairs_of(own, other)

    assert pair.seeds == ("1", "2")
    assert paired(pair) == (1.0, 0.0)           # 9 - 8 and 11 - 10
    (alone,) = pairs_of(own, other | {"by_seed": None})
    assert paired(alone).mean == 1.0 and paired(alone).half_width != paired(alone).half_width


def test_against_another_search_tells_when_bounds_differ(searched, tmp_path):
    directory = shutil.copytree(searched[0], tmp_path / "out")
    content = json.loads((directory / "capacity.json").read_text())
    (directory / "capacity.json").write_text(json.dumps(content | {"name": "other", "slo": {}}))
    page = capacity_page(searched[0], directory)

    assert section(page, "Against other").says.endswith("The bounds are not the same.")


def test_mixes_have_their_verdicts_and_the_target(tmp_path):
    # 1,050/s: two slow servers of 500 are tried, since 15 % more may be carried, and fail; three pass
    text = SERVER.replace("rate_per_s = 500.0", "rate_per_s = 1050.0") + POOLS + MIX
    asked(written(tmp_path, text), tmp_path / "out")
    page = capacity_page(tmp_path / "out", tmp_path / "out")

    assert page.says == "3 slow: 3 GPUs, 4.50 per hour, at 1,050 requests/s." and page.is_good
    assert [(row[1], row[5]) for row in section(page, "Mixes").rows] == [("2 slow", "fail"), ("1 quick", "fail"),
                                                                        ("3 slow", "pass")]
    (panel,) = chart(page, "mixes").panels
    assert [mark.texts for mark in panel.marks if isinstance(mark, Labelled)] == [("2 slow", "1 quick"), ("3 slow",)]
    assert [mark.y for mark in panel.marks if isinstance(mark, Level)] == [1050.0]
    assert [row[1] for row in section(page, "Against server").rows] == ["3 slow", "3 slow"]


def test_where_nothing_qualifies_the_report_says_who_missed_by_least(tmp_path):
    (tmp_path / "tune.toml").write_text(EXPERIMENT + TUNE.replace("max = 400.0", "max = 0.001"))
    out = str(tmp_path / "out")
    assert cli.main(["tune", str(tmp_path / "tune.toml"), "--out", out, "--jobs", "1", "--quiet"]) == 3
    page = tune_page(tmp_path / "out", None)

    assert page.says.startswith("Nothing qualifies of 9 candidates: ") and "Nearest to qualify: " in page.more
    assert section(page, "Ranking").says == "Nothing qualifies." and not page.is_good


def test_a_front_is_named_by_rank_and_every_candidate_has_its_place(tuned):
    page = tune_page(tuned, None)
    with open(tuned / "ranking.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    front = [row for row in rows if row["front"] == "1"]
    (mark,) = [mark for mark in chart(page, "front_0").panels[0].marks if isinstance(mark, Labelled)]

    assert sorted(mark.texts) == sorted(row["rank"] for row in front)
    assert mark.x.tolist() == sorted(float(row["output_throughput"]) for row in front)
    ranked = [row for row in rows if row["status"] == "feasible"]
    others = sum(int(row[1]) for row in section(page, "Not in the ranking").rows)
    assert (len(section(page, "Ranking").rows), others) == (len(ranked), len(rows) - len(ranked))
    assert {row[0] for row in section(page, "Not in the ranking").rows} == {"infeasible", "too many gpus"}


def test_the_best_candidate_is_the_verdict(tuned):
    page = tune_page(tuned, None)
    best = json.loads((tuned / "tune.json").read_text())["best"]

    assert page.says.startswith("Best of 9 candidates: ")
    assert f"max_num_seqs {best['assignment']['engine.max_num_seqs']}" in page.says


def test_candidates_of_two_studies_are_paired(tuned, tmp_path):
    other = shutil.copytree(tuned, tmp_path / "out")
    page = tune_page(tuned, other)
    (found,) = [each for each in page.before if each.title == "Against tune (against)"]

    assert {row[0]: row[3] for row in found.rows} == {"output tokens/s": "0 ± 0", "TTFT mean, ms": "0 ± 0"}


def test_a_tuning_study_that_was_stopped_says_incomplete(tuned, tmp_path):
    directory = shutil.copytree(tuned, tmp_path / "out")
    for name in ("tune.json", "ranking.csv"):
        (directory / name).unlink()

    assert tune_page(directory, None).says.startswith("Incomplete: the search has not come to an end; ")
