"""What `tune` prints: every axis is a column, reasons in words, 80 columns, the answer alone with --quiet."""
import csv
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.study.capacity.point_search import cost_per_hour
from simulator.study.reports.tune import tune_page
from simulator.study.statistics.intervals import Estimate
from simulator.study.telling.screen import width_of
from simulator.study.tuning.candidates import Candidate, Dropped
from simulator.study.tuning.files import StudyResults
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.objectives import Objective
from simulator.study.tuning.result import CandidateResult
from simulator.study.tuning.summary_text import answer_of, screen_of, table_of

ONE = ('tokens_per_s_per_user = "max"\n', "")
MIXTURE = """
seed = 5
model = {name = "qwen3-30b-a3b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "roofline"}
[workload]
type = "synthetic"
num_requests = 20
prompt_tokens = {distribution = "constant", tokens = 200}
output_tokens = {distribution = "constant", tokens = 20}
arrival = {process = "poisson", rate_per_s = 20.0}
"""
PRICES = """
[prices]
"h100-sxm-80gb" = {per_gpu_hour = 2.5, currency = "USD", date = "2026-11-01", source = "a list"}
"l40s" = {per_gpu_hour = 1.0, currency = "USD", date = "2026-11-01", source = "a list"}
"""


def words(text):
    return " ".join(text.split())


def columns_of(out):
    """Return the heads of the table, parts and lines put together again."""
    table, heads = out.split("\n\n")[1:], []
    for part in table:
        lines = part.splitlines()
        if not lines[0].startswith("rank"):
            break
        depth = next(i for i, line in enumerate(lines) if line.split()[0].strip("*").isdecimal())
        row = lines[depth]
        ends = [match.end() for match in re.finditer(r"\S+", row)]
        starts = [0, *(end + 1 for end in ends[:-1])]
        heads += ["".join(line[start:end + 1].strip() for line in lines[:depth])
                  for start, end in zip(starts, ends, strict=True)][bool(heads):]
    return heads


def rows_of(path):
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def mixture(study, tmp_path):
    """Return a study of a model with experts over TP, EP, the GPU's name and a key that all share."""
    def write(axes, objectives='output_throughput = "max"', more=""):
        path = study()
        (tmp_path / "base.toml").write_text(MIXTURE + PRICES)
        path.write_text(f'extends = "base.toml"\nname = "small"\n[study]\nkind = "tune"\n[study.objectives]\n'
                        f'{objectives}\n[study.axes]\n{axes}\n[study.limits]\n{more}')
        return path

    return write


AXES = """
"topology.tensor_parallel" = [2]
"topology.expert_parallel" = [1, 2]
"hardware.name" = ["h100-sxm-80gb"]
"engine.max_num_seqs" = [16, 32]
"""


def test_every_axis_is_a_column_whether_its_values_differ_or_not(mixture, tune, tmp_path, capsys):
    status, told = tune(mixture(AXES))
    assert status == 0, told
    head = columns_of(capsys.readouterr().out)

    assert head == ["rank", "output_throughput", "GPUs", "layout", "tensor_parallel", "expert_parallel", "name",
                    "max_num_seqs"]
    row = rows_of(tmp_path / "out" / "ranking.csv")[0]
    assert (row["topology.tensor_parallel"], row["hardware.name"]) == ("2", "h100-sxm-80gb")
    assert {row["topology.expert_parallel"], row["engine.max_num_seqs"]} <= {"1", "2", "16", "32"}
    (ranking,) = [each for each in tune_page(tmp_path / "out", None).before if each.title == "Ranking"]
    assert {"layout", "tensor_parallel", "expert_parallel", "name", "max_num_seqs"} <= set(ranking.columns)


def test_an_axis_that_some_points_leave_out_shows_its_default(mixture, tune, tmp_path, capsys):
    # TP of the experiment is 1, its GPU an H100, EP 1, and 1,024 sequences are vLLM's default there
    path = mixture("")
    path.write_text(path.read_text().replace('kind = "tune"', '''kind = "tune"
design = "list"
[[study.points]]
"topology.tensor_parallel" = 2
"topology.expert_parallel" = 2
[[study.points]]
"engine.max_num_seqs" = 16
[[study.points]]
"hardware.name" = "l40s"
"topology.tensor_parallel" = 4
''').replace("[study.axes]\n", ""))
    assert tune(path)[0] == 0
    rows = {row["number"]: row for row in rows_of(tmp_path / "out" / "ranking.csv")}

    keys = ("topology.tensor_parallel", "topology.expert_parallel", "hardware.name")
    assert [tuple(rows[number][key] for key in keys) for number in "012"] == [
        ("2", "2", "h100-sxm-80gb"), ("1", "1", "h100-sxm-80gb"), ("4", "1", "l40s")]
    out = capsys.readouterr().out
    table = out.split("\n\n")[1]
    assert table.count("l40s") == 1 and table.count("h100-sxm-80gb") == 2


def test_an_axis_of_which_no_ranked_candidate_has_a_value_is_a_column(study, tune, capsys):
    # 4 GPUs of decode do not fit into 3: none of the ranked has that axis
    path = study(ONE, ('"engine.max_num_seqs" = [8, 64]', '"pools.1.topology.tensor_parallel" = [4]'))
    assert tune(path)[0] == 0

    assert "decode." in capsys.readouterr().out.split("\n\n")[1]


def test_prices_act_as_cost_per_hour_does(mixture, tune, tmp_path):
    axes = '"topology.replicas" = [1, 2]\n"hardware.name" = ["h100-sxm-80gb", "l40s"]\n"topology.tensor_parallel" = [4]'
    status, told = tune(mixture(axes, 'cost_per_hour = "min"'))
    rows = rows_of(tmp_path / "out" / "ranking.csv")

    # 4 GPUs a replica: 10 and 20 an hour of H100, 4 and 8 of L40S
    assert status == 0 and [float(row["cost_per_hour"]) for row in rows] == [4.0, 8.0, 10.0, 20.0]
    assert told["best"]["values"]["cost_per_hour"]["mean"] == 4.0


def test_a_price_counts_each_pool_those_that_encode_too(asked):
    question = asked(ONE)
    experiment = question.study.experiment_of({})
    assert cost_per_hour(experiment) is None
    priced = question.study.experiment_of({"prices": {"h100-sxm-80gb": {
        "per_gpu_hour": 2.0, "currency": "USD", "date": "2026-11-01", "source": "a list"}},
        "topology.tensor_parallel": 2, "topology.replicas": 3})
    assert cost_per_hour(priced) == 12.0


def test_quiet_prints_the_winner_alone(study, tune, tmp_path, capsys):
    assert tune(study(), "--quiet")[0] == 0
    best = rows_of(tmp_path / "out" / "ranking.csv")[0]

    assert words(capsys.readouterr().out) == (
        f"{best['layout']}, tensor_parallel {best['topology.tensor_parallel']}, max_num_seqs "
        f"{best['engine.max_num_seqs']}, replicas {best['topology.replicas']}, {best['gpus']} GPUs: "
        f"output_throughput_per_gpu {float(best['output_throughput_per_gpu']):.6g}, tokens_per_s_per_user "
        f"{float(best['tokens_per_s_per_user']):.6g}")


def test_quiet_says_that_nothing_qualifies(study, tune, capsys):
    bounds = '[study.slo]\n"ttft_ms.p99" = {max = 1.0}\nbacklog = "any"\n'
    assert tune(study(ONE, ("[8, 64]", "[8]"), add=bounds), "--quiet")[0] == 3

    out = words(capsys.readouterr().out)
    assert out.startswith("nothing qualifies; nearest: ") and "tensor_parallel" in out and "{" not in out


def test_reasons_are_told_by_candidate_in_words(study, tune, capsys):
    bounds = '[study.slo]\n"ttft_ms.p99" = {max = 1.0}\nbacklog = "any"\n'
    assert tune(study(("[8, 64]", "[8]"), add=bounds))[0] == 3
    out = capsys.readouterr().out

    assert "{" not in out and "'" not in out and "pools.0" not in out
    assert words(out).count("infeasible: ") >= 5 and "too many gpus: " in words(out)
    assert "infeasible: disaggregated, prefill.replicas 1, decode.replicas 2, tensor_parallel 1, max_num_seqs 8: " in (
        words(out))


def test_reasons_stand_below_a_ranking_too(study, tune, capsys):
    assert tune(study())[0] == 0

    assert ("too many gpus: disaggregated, prefill.replicas 1, decode.replicas 1, tensor_parallel 2, max_num_seqs 8 "
            "and 1 more: 4 GPUs, 3 are allowed") in words(capsys.readouterr().out)


NO_SLO = "the experiment has no [slo], which says which requests are good"


@pytest.mark.parametrize(("objectives", "fault"), [
    ('request_goodput = "max"', f"objectives.request_goodput: {NO_SLO}"),
    ('request_goodput_per_gpu = "max"', f"objectives.request_goodput_per_gpu: {NO_SLO}"),
    ('slo_attainment = "max"', f"objectives.slo_attainment: {NO_SLO}"),
    ('"cost.total" = "min"', "objectives.cost.total: the experiment has no [prices]"),
    ('"cost.cost_per_million_output_tokens" = "min"', "the experiment has no [prices]"),
    ('cost_per_hour = "min"', "objectives.cost_per_hour: the experiment has no [prices]"),
    ('"energy.joules_per_output_token" = "min"', "the experiment has no [power]"),
    ('"energy.carbon_g" = "min"', "the experiment has no [carbon]"),
    ('"energy.electricity_cost" = "min"', "the experiment has no [electricity]"),
    ('"fitness.total" = "max"', "the experiment has no [fitness]")])
def test_numbers_that_the_experiment_has_no_table_for_are_refused_before_a_run(
        study, tune, tmp_path, capsys, monkeypatch, objectives, fault):
    monkeypatch.setattr("simulator.study.sweep.bench.Bench.run", None)
    path = study(ONE, ('output_throughput_per_gpu = "max"', objectives))

    assert tune(path) == (2, None)
    assert fault in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_an_axis_may_bring_in_what_a_number_takes(study, tune):
    path = study(ONE, ('output_throughput_per_gpu = "max"', 'request_goodput = "max"'),
                 ('"engine.max_num_seqs" = [8, 64]', '"slo.ttft_ms" = [500.0, 1000.0]'))
    assert tune(path)[0] == 0


KEYS = st.sampled_from(["topology.tensor_parallel", "hardware.name", "topology.expert_parallel", "engine.max_num_seqs",
                        "cluster.routing.parameters.a_very_long_name_of_a_parameter", "k" * 100, "pools.0.engine.x"])
CELLS = st.one_of(st.integers(), st.floats(), st.booleans(), st.sampled_from([
    "h100-sxm-80gb", "a" * 150, "mymodule.of_mine:ARouterWithALongName", "日本語" * 30]))


@given(st.lists(KEYS, min_size=1, max_size=7, unique=True), st.data())
def test_all_that_is_printed_fits_a_screen(keys, data):
    def candidate(number):
        own = {key: data.draw(CELLS) for key in keys}
        return Candidate(number, "disaggregated", own, None, 123_456)

    objectives = tuple(Objective(key, True) for key in data.draw(st.lists(st.sampled_from([
        "output_throughput_per_gpu", "tokens_per_s_per_user_by_concurrency", "energy.joules_per_output_token"]),
        min_size=1, unique=True)))
    results = [CandidateResult(candidate(number), "feasible", values=(Estimate(1e9 / 3, 1e7),) * len(objectives),
                               margin=-0.5) for number in range(data.draw(st.integers(0, 3)))]
    miss = CandidateResult(candidate(7), "infeasible", f"{'x' * 90}.p99: 900 > 500", margin=-0.1)
    axes = tuple(SimpleNamespace(key=key, values=(1, 2), at=None) for key in keys)
    question = SimpleNamespace(objectives=objectives, settings=SimpleNamespace(points=()), study=SimpleNamespace(
        base=SimpleNamespace(pools=()), axes=axes))
    outcome = Findings("exhaustive", [*results, miss], [Dropped(candidate(9), "forbidden", "no " * 60)], [], True)
    found = StudyResults(results, {0, 1}, {"counts": {"feasible": 1, "infeasible": 1}, "candidates": 3,
                                           "complete": True}, miss)

    for text in (table_of(question, found), screen_of(question, outcome, found), answer_of(question, found)):
        assert max(map(width_of, text.split("\n"))) <= 80
