"""Predictions beside measurements: the data sets, the rows, the gate, the page."""
import csv
import hashlib
import importlib.util
import json
import shutil
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from simulator import cli
from simulator.assembly.latency import Readings
from simulator.errors import InputErrors
from simulator.latency.operators import files as operator_files
from simulator.study.accuracy import ablation, chosen, deployed
from simulator.study.accuracy.ablation import Price
from simulator.study.accuracy.data_set import open_all
from simulator.study.accuracy.errors import errors_of, ks_distance, spread_of
from simulator.study.accuracy.page import page
from simulator.study.accuracy.predict import Ways, _layers
from simulator.study.accuracy.scoring import read_score
from simulator.study.accuracy.scoring import score as scored
from support.accuracy import HEAD, POINTS, TEXT, score, write_set

ROOT = Path(__file__).parents[2]
@pytest.fixture
def write(tmp_path):
    """Write a data set; return its folder."""
    return partial(write_set, tmp_path)


def test_errors_are_those_worked_out_by_hand():
    # 10 for 20 is -50 %, 10 for 8 is +25 %, 12 for 12 is 0; means 32 / 40
    found = errors_of(np.array([10.0, 10.0, 12.0]), np.array([20.0, 8.0, 12.0]))
    assert (found.mape, found.median_ape, found.bias) == pytest.approx((0.25, 0.25, -0.25 / 3))
    assert found.mean_error == pytest.approx(-0.2)


def test_distance_of_distributions_is_the_largest_gap():
    # up to 2 lie both of the left and one of four of the right: 1 - 1/4
    assert ks_distance(np.array([1.0, 2.0]), np.array([2.0, 3.0, 4.0, 5.0])) == 0.75
    assert ks_distance(np.arange(5.0), np.arange(5.0)) == 0.0
    assert spread_of(np.array([2.0, 4.0]), np.array([1.0, 2.0])).p50 == pytest.approx(1.0)


def test_every_status_has_its_row(write, tmp_path, monkeypatch):
    monkeypatch.setattr(operator_files, "find_spec", lambda name: None)
    write()
    status, found = score(tmp_path, "--backend", "linear", "--backend", "operators", "--backend", "roofline")
    rows = {(row["backend"], row["model"], row["metric"]): row for row in found["rows"]}

    assert status == 0
    ttft, tpot = (rows["linear", "llama-3.1-8b", metric] for metric in ("ttft", "tpot"))
    assert (ttft["status"], ttft["n"], ttft["mape_pct"], ttft["bias_pct"]) == pytest.approx(("ok", 2, 37.5, -12.5))
    assert (tpot["mape_pct"], tpot["noise_pct"], ttft["noise_pct"]) == pytest.approx((10.0, None, 2.0))
    assert rows["linear", "llama-9000", ""]["status"] == "no facts"
    assert rows["linear", "llama-3.1-405b", ""]["status"] == "refused"
    assert "weights" in rows["linear", "llama-3.1-405b", ""]["reason"]
    assert rows["operators", "llama-3.1-8b", ""]["status"] == "missing extra"
    assert rows["operators", "llama-3.1-8b", ""]["n"] == 2
    assert rows["roofline", "llama-3.1-8b", "ttft"]["in_sample"]
    assert rows["Peer (published)", "llama-3.1-8b", "ttft"]["mape_pct"] == pytest.approx(25.0)


def test_intervals_are_counted_that_hold_what_was_measured(write, tmp_path):
    row = "{},h100-sxm-80gb,llama-3.1-8b,,,1,100,20,1,,{},,10"
    write(points=[row.format("a", 1)])
    score(tmp_path, "--backend", "roofline")
    with (tmp_path / "out/points.csv").open() as stream:
        predicted, = (each["predicted"] for each in csv.DictReader(stream) if each["backend"] == "roofline")
    shutil.rmtree(tmp_path / "sets")
    # what was predicted lies in the interval, ten times as much does not
    write(points=[row.format("a", predicted), row.format("b", 10 * float(predicted))])

    _, found = score(tmp_path, "--backend", "roofline", "--set", "latency.uncertainty=true")

    assert [each["coverage_pct"] for each in found["rows"]] == [50.0, None]         # the peer has no intervals
    assert "| covered |" in (tmp_path / "out/score.md").read_text()


def test_page_keeps_in_sample_apart_and_tells_what_is_missing(write, tmp_path):
    write()
    score(tmp_path, "--backend", "linear", "--backend", "roofline")
    text = (tmp_path / "out/score.md").read_text()
    held, in_sample = text.split("## Held data, in sample")

    assert "| TTFT | linear | 2 | 37.5 |" in held and "| TTFT | roofline |" not in held
    assert "| TTFT | roofline | 2 |" in in_sample and "no facts" in in_sample


def test_medians_are_over_data_sets(write, tmp_path):
    write(points=POINTS[:1])                                            # 10 for 20: 50 %
    write(TEXT.replace("made-up", "other"), POINTS[1:2], "two")         # 10 for 8: 25 %
    write(TEXT.replace("made-up", "third"), POINTS[1:2], "three")
    overall = score(tmp_path, "--backend", "linear")[1]["overall"]
    assert [(each["data_sets"], each["mape_pct"]) for each in overall
            if (each["backend"], each["metric"]) == ("linear", "ttft")] == [(3, pytest.approx(25.0))]


def test_files_that_are_not_there_are_told(write, tmp_path):
    write()
    (tmp_path / "one.csv").unlink()
    row, = score(tmp_path, "--backend", "linear")[1]["rows"]
    assert row["status"] == "refused" and row["reason"].startswith(f"files not found: {tmp_path / 'one.csv'}")


def test_unusable_measurements_are_not_compared(write, tmp_path):
    write(TEXT + '[[unusable]]\nmetric = "ttft"\nmodel = "llama-3.1-8b"\nreason = "unknown clock"\n')
    rows = score(tmp_path, "--backend", "linear")[1]["rows"]
    told = [row for row in rows if row["metric"] == "ttft"]
    assert {(row["status"], row["reason"]) for row in told if row["model"] == "llama-3.1-8b"} == {
        ("refused", "not compared: unknown clock")}


def test_all_faults_of_all_data_sets_come_at_once(write, tmp_path, capsys):
    write(TEXT.replace('source = "own"\n', "").replace('level = "request"', 'level = "step"'))
    write(TEXT.replace("made-up", "other").replace('fits = ["roofline"]', 'fits = ["rooflin"]'), name="two",
          digest="0" * 64)
    status = cli.main(["score", str(tmp_path / "sets"), str(tmp_path / "none"), "--root", str(tmp_path)])
    told = capsys.readouterr().err

    assert status == 2
    for fault in ("source: missing", 'no backend "rooflin"; did you mean roofline?', "sha256: ", "no dataset.toml"):
        assert fault in told


def test_faults_of_points_name_line_and_column(write, tmp_path, capsys):
    write(points=(POINTS[0].replace(",20,1,20,", ",0,1,-3,"), POINTS[1]))
    assert cli.main(["score", str(tmp_path / "sets"), "--root", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "one.csv:2: output_tokens: expected a whole number" in told
    assert "one.csv:2: ttft_ms: expected a number above 0, found '-3'" in told


def test_gate_tells_what_is_worse_or_gone(write, tmp_path, capsys):
    write()
    score(tmp_path, "--backend", "linear", out="before")
    baseline = ("--backend", "linear", "--baseline", str(tmp_path / "before/score.json"))
    assert score(tmp_path, *baseline)[0] == 0
    slower = ("--set", "latency.base_us=11_000.0")      # TTFT 11 for 20 and 8: 45 and 37.5 %, 41.25 in the mean
    assert score(tmp_path, *baseline, *slower)[0] == 1
    assert "ttft: MAPE grew from 37.50 to 41.25 %, by more than 1 points" in capsys.readouterr().err
    assert score(tmp_path, *baseline, *slower, "--tolerance", "3.8")[0] == 0
    (tmp_path / "one.csv").unlink()
    assert score(tmp_path, *baseline)[0] == 1
    assert "the row is gone: files not found" in capsys.readouterr().err


def _log(tmp_path, write_line):
    """Write a replay of two requests, 1 s apart; return its dataset.toml without files."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(
        {"timestamp": 500 * i, "input_length": 32, "output_length": 11, "hash_ids": [2 * i, 2 * i + 1]}) + "\n"
        for i in range(2)))
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(write_line(i)) + "\n" for i in range(2)))
    (tmp_path / "engine.json").write_text(json.dumps({"engine_kwargs": {"max_num_seqs": 8, "seed": 1}}))
    text = TEXT.replace('"closed_loop"', '"request_log"').replace("requests_per_client = 2\nshortest_share = 1.0",
                                                                  "block_size = 16")
    text = text.split("[[peers]]")[0] + ('[experiment.model]\nname = "llama-3.1-8b"\n'
                                         '[experiment.hardware]\nname = "h100-sxm-80gb"\n')
    for role, name in (("requests", "log.jsonl"), ("inputs", "in.jsonl"), ("engine", "engine.json")):
        digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        text += f'[[files]]\nrole = "{role}"\npath = "{name}"\nsha256 = "{digest}"\n'
    (tmp_path / "sets/log").mkdir(parents=True)
    (tmp_path / "sets/log/dataset.toml").write_text(text)


def test_paths_that_begin_with_a_dot_lie_beside_the_data_set(write, tmp_path):
    folder = write(TEXT + '[backends.aicb]\npath = "./tables"\nother = ["./a", "b"]\n')
    found, = open_all([folder], tmp_path)

    assert found.says.backends["aicb"] == {"path": str(folder / "tables"), "other": [str(folder / "a"), "b"]}


@pytest.mark.parametrize(("column", "framework", "version", "expected"), [
    ("version", "vllm", "0.16.0", "0.16.0"), ("vllm_version", "", "0.18.0", "0.18.0"), ("version", "vllm", "", None),
    ("version", "vllm", "nightly-dev-20260216", None), ("version", "sglang", "0.5.9", None)])
def test_release_of_a_vllm_server_chooses_its_kernels(write, tmp_path, column, framework, version, expected):
    write(head=f"{HEAD},framework,{column}", points=[f"{POINTS[0]},{framework},{version}"])
    data_set, = open_all([tmp_path / "sets"], tmp_path)
    case, = data_set.cases()

    assert case.backends.get("operators", {}).get("engine_version") == expected


def test_options_of_servers_go_to_their_rows_alone(write, tmp_path):
    options = """[[reader.options]]
where = {output_tokens = ["20", "30"], tensor_parallel = ["1"]}
engine = {max_num_batched_tokens = 50}
rate_per_s = 8
"""
    write(text=TEXT.replace("[experiment.engine]", f"{options}[experiment.engine]"),
          points=[POINTS[0], POINTS[1].replace(",100,20,", ",100,40,")])
    data_set, = open_all([tmp_path / "sets"], tmp_path)
    cases = data_set.cases()
    loads = [case.tables["workload"]["load"] for case in cases]

    assert [case.tables["engine"].get("max_num_batched_tokens") for case in cases] == [50, None]
    assert [load.get("ramp_up_s") for load in loads] == [loads[0]["concurrency"] / 8, None]


def test_options_of_servers_go_to_pools_and_to_their_prices(write, tmp_path):
    options = """[[reader.options]]
where = {decode_tensor_parallel = ["2"]}
model = {kv_cache_dtype = "fp8"}
pools.decode = {engine = {max_num_seqs = 9}, topology = {expert_parallel = 2}}
backends.operators.decode = {expert_load = "balanced"}
"""
    pools = ",".join(f"{role}_{size}" for role in deployed.ROLES for size in deployed.SIZES)
    write(text=TEXT.replace("[experiment.engine]", f"{options}[experiment.engine]"), head=f"{HEAD},mode,{pools}",
          points=[f"{POINTS[0]},disaggregated,1,1,1,1,1,{ways},1,1" for ways in (2, 4)])
    data_set, = open_all([tmp_path / "sets"], tmp_path)
    asked, other = data_set.cases()
    prices = [_layers(data_set, asked, Ways(backend, Readings())).data["pools"] for backend in ("operators", "linear")]

    assert [case.tables["model"].get("kv_cache_dtype") for case in (asked, other)] == ["fp8", None]
    assert [case.tables["pools"][1].get("engine") for case in (asked, other)] == [{"max_num_seqs": 9}, None]
    assert asked.tables["pools"][1]["topology"] == {"tensor_parallel": 2, "expert_parallel": 2}
    assert [[pool.get("latency") for pool in pools] for pools in prices] == [
        [None, {"expert_load": "balanced"}], [None, None]]
    assert not other.pool_backends


def test_options_of_servers_by_a_column_that_is_not_there_are_refused(write, tmp_path):
    write(text=TEXT.replace("[experiment.engine]", '[[reader.options]]\nwhere = {outputs = ["20"]}\nengine = {}\n'
                                                   "[experiment.engine]"))

    with pytest.raises(InputErrors, match="outputs: no such column"):
        open_all([tmp_path / "sets"], tmp_path)[0].cases()


def test_release_of_a_server_is_told_to_operators_alone(write, tmp_path):
    write(head=f"{HEAD},framework,version", points=[f"{POINTS[0]},vllm,0.16.0"])

    assert score(tmp_path, "--backend", "linear")[1]["rows"][0]["status"] == "ok"


def test_each_price_is_taken_away_in_turn(write, tmp_path, monkeypatch):
    monkeypatch.setattr(ablation, "BACKEND", "linear")          # TTFT and TPOT of 10 ms, or 12
    write()
    data_sets = open_all([tmp_path / "sets"], tmp_path)
    found = ablation.ablate(data_sets, [Price("", ()), Price("speed", ("latency.base_us=12_000.0",)),
                                        Price("nothing", ("latency.base_us=10_000.0",)),
                                        Price("all", ("latency.backend='oracle'",))])
    text = page(msgspec.structs.replace(scored(data_sets, ["linear"]).score, ablations=found))

    assert "| without | by | made-up TPOT | made-up TTFT |" in text
    assert "| nothing: all prices | - | 10.0 (-10.0) | 37.5 (-12.5) |" in text      # of 12.5 and 10; of 20 and 8
    assert "| speed | `latency.base_us=12_000.0` | 12.0 (+8.0) | 45.0 (+5.0) |" in text
    assert "| nothing | `latency.base_us=10_000.0` | = | = |" in text
    assert "| all | `latency.backend='oracle'` | refused | refused |" in text


def test_deployment_is_left_out_of_the_choice_of_prices(write, tmp_path, monkeypatch):
    monkeypatch.setattr(ablation, "BACKEND", "linear")          # predicted TTFT and TPOT: 10 ms
    write()
    data_sets = open_all([tmp_path / "sets"], tmp_path)
    slow = Price("slow", ("latency.base_us=8_000.0",))
    name = data_sets[0].says.name
    mine = ablation.ablate(data_sets, [Price("", ()), slow])

    def beside(change):     # another deployment: errors of 10 %, and `change` more without the price
        return (*mine, *(msgspec.structs.replace(each, data_set="other", mape_pct=10 + (change if each.without else 0))
                         for each in mine))

    assert chosen.without_help(beside(+1.0), name) == () and chosen.without_help(beside(-1.0), name) == ("slow",)
    errors = {(each.without, each.metric): each.mape_pct for each in mine}
    kept, = (each for each in chosen.choose(data_sets, beside(+1.0)) if each.metric == "tpot")
    dropped, = (each for each in chosen.choose(data_sets, beside(-1.0)) if each.metric == "tpot")
    assert (kept.dropped, dropped.dropped) == ((), ("slow",))
    assert (kept.mape_pct, dropped.mape_pct) == (errors["", "tpot"], errors["slow", "tpot"])
    assert kept.mape_pct != dropped.mape_pct
    text = page(msgspec.structs.replace(scored(data_sets, ["linear"]).score, ablations=mine,
                                        chosen=chosen.choose(data_sets, beside(-1.0))))
    assert "| TPOT | slow |" in text and "- TPOT, median APE: " in text


def test_prices_are_taken_away_together():
    prices = [Price("a", ("latency.x=1",)), Price("b", ('latency.without=["b"]',)),
              Price("c", ('latency.without=["c"]',))]
    assert chosen.together(prices) == ("latency.x=1", 'latency.without=["b", "c"]')


def test_prices_are_those_of_the_backend():
    names = [name for price in ablation.all_prices() for name in price.overrides]

    assert names[0] == 'latency.host.defaults="none"' and 'latency.without=["qk_norm"]' in names
    assert ablation.all_prices()[0] == ("", ())


def test_replay_is_compared_request_by_request(tmp_path):
    # measured: first tokens after 8 and 20 ms, ten more within 100 ms; predicted 10 and 100 ms. Makespan 1.12 s: 1.11
    _log(tmp_path, lambda i: {"request_id": str(i), "input_toks": 32, "output_toks": 11, "queued_ts": 5.0 + i,
                              "first_token_ts": 5.0 + i + (0.008, 0.02)[i],
                              "last_token_ts": 5.0 + i + (0.108, 0.12)[i]})
    rows = {row["metric"]: row for row in score(tmp_path, "--backend", "linear")[1]["rows"]}

    assert (rows["ttft"]["n"], rows["ttft"]["mape_pct"]) == (2, pytest.approx(37.5))
    assert rows["tpot"]["mape_pct"] == pytest.approx(0.0, abs=1e-6)
    assert rows["ttft"]["ks"] == 0.5
    assert rows["makespan"]["bias_pct"] == pytest.approx(100 * (1.11 / 1.12 - 1))


def test_log_of_another_trace_is_refused(tmp_path):
    _log(tmp_path, lambda i: {"request_id": str(i), "input_toks": 33, "output_toks": 11, "queued_ts": 5.0 + i,
                              "first_token_ts": 6.0 + i, "last_token_ts": 7.0 + i})
    row, = score(tmp_path, "--backend", "linear")[1]["rows"]
    assert row["status"] == "refused" and "other requests than the log" in row["reason"]


def test_the_committed_page_is_what_its_score_says():
    spec = importlib.util.spec_from_file_location("accuracy_page", ROOT / "tools/accuracy_page.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    found = read_score(tool.SCORE)
    guide = tool.GUIDE.read_text()

    assert tool.PAGE.read_text() == page(found)
    assert tool.quoting(guide, found) == guide and guide.count("<!-- score ") == 2
    assert found == tool.committed(found)
    assert tool.kept_of(found, found) == [*found.ablations]         # as new as the scores with all prices
    assert {each.without for each in found.ablations} == {price.name for price in tool.all_prices()}
    assert tool.COMPARED.read_text() == tool.comparing(found)
    facts = tool.CHECKED.read_text()
    assert tool.scoring(facts, found) == facts and len(tool.SCORED.findall(facts)) == 2
