"""`plan` answers with a deployment that `tune` finds again, and with the most that is held where nothing does."""
import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import pytest

import simulator
from simulator import cli
from simulator.domain.vllm_versions import behaviour_of
from simulator.study.planning.answer import plain, rate_text

EASY = {"gpus": 1, "input": 100, "output": 8, "tpot_p99": 200}


def test_numbers_as_they_were_given_have_no_exponent():
    assert [plain(number) for number in (1e6, 1000, 15.5, 1e-7)] == ["1,000,000", "1,000", "15.5", "0.0000001"]


def test_rates_have_no_exponent():
    assert [rate_text(rate) for rate in (40_580.2, 999.94, 88.143, 0.31254)] == ["40,580", "999.9", "88.14", "0.3125"]
    assert [rate_text(tokens, 10) for tokens in (2_203.6, 10.4, 0.31254)] == ["2,204", "10", "0.3125"]


def test_the_largest_rate_is_that_of_the_study_it_writes(asked, tmp_path):
    status, told = asked()
    study = tmp_path / "plan" / "study.toml"
    cli.main(["tune", str(study), "--out", str(study.with_suffix("")), "--jobs", "1", "--quiet"])
    ranking = json.loads((tmp_path / "plan/study/tune.json").read_text())
    names = [each["deployment"] for each in told["studies"]["study"]["deployments"]]

    assert status == 0 and told["holds"]
    assert set(names) == {"TP1 x 2", "TP1 PP2 x 1", "P TP1 x 1, D TP1 x 1"}
    assert told["best"]["rate"] == ranking["best"]["rate"] == max(
        each["rate"] for each in told["studies"]["study"]["deployments"])
    assert ranking["best"]["assignment"]["topology.replicas" if told["best"]["layout"] == "aggregated"
                                         else "pools.0.replicas"] >= 1
    assert all(value <= {"ttft_ms.p99": 500, "tpot_ms.p99": 40}[key] for key, value in told["best"]["metrics"].items())
    assert told["accuracy"][0]["backend"] == "roofline"


def test_the_fewest_gpus_for_a_rate_hold_it_and_one_less_does_not(asked):
    _, most = asked(gpus=1, no_split=True, out="one")
    rate = 2.5 * most["best"]["rate"]           # two replicas hold less, whatever the router does; four hold it
    status, told = asked(gpus=8, no_split=True, rate=f"{rate:.2f}", out="rate")
    found = {each["gpus"]: each["status"] for each in told["studies"]["study"]["deployments"]
             if each["deployment"].startswith("TP1 x")}
    fewest = told["best"]["gpus"]

    assert status == 0 and told["best"]["deployment"] == f"TP1 x {fewest}" and 2 <= fewest <= 4
    assert found[fewest] == "feasible" and found[fewest - 1] == "infeasible"


def test_a_rate_that_nothing_holds_names_the_most_that_is_held(asked):
    status, told = asked(gpus=1, rate=1000, no_split=True)

    assert status == 3 and not told["holds"] and set(told["studies"]) == {"study", "largest"}
    assert {each["status"] for each in told["studies"]["study"]["deployments"]} == {"infeasible"}
    assert told["best"]["deployment"] == "TP1 x 1" and 0 < told["best"]["rate"] < 1000
    assert told["answer"].startswith("1 GPU does not hold 1,000 requests/s; the most that it holds: ")


def test_split_pools_of_sglang_are_simulated(asked, tmp_path):
    status, told = asked(engine="sglang", **EASY | {"gpus": 2})
    names = {each["deployment"] for each in told["studies"]["study"]["deployments"]}

    assert status == 0 and "P TP1 x 1, D TP1 x 1" in names
    assert not [note for note in told["notes"] if "not simulated" in note]


def test_the_answer_is_an_experiment_at_its_rate(asked):
    _, told = asked(prices="2.5", **EASY)
    summary = simulator.run(told["answer_file"]).summary

    assert summary["ttft_ms"]["p99"] == told["best"]["metrics"]["ttft_ms.p99"]
    assert summary["offered_throughput"] == pytest.approx(told["best"]["rate"], rel=0.1)


def test_layouts_within_the_tolerance_of_a_search_are_named(asked, monkeypatch):
    monkeypatch.setattr("simulator.study.planning.answer.REL_TOL", 0.999)
    _, told = asked()
    best, *others = [each["deployment"] for each in told["studies"]["study"]["deployments"]]

    assert f"rates are found to 100%, each with one seed; as good as {best}: {', '.join(others)}" in told["notes"]


def test_bounds_that_no_rate_holds(asked):
    status, told = asked(gpus=1, tpot_p99=0.01)             # reading 16 GB of weights takes 4.8 ms and more

    assert status == 3 and told["best"] is None and "keeps the bounds" in told["answer"]
    assert "tpot_ms.p99" in told["studies"]["study"]["deployments"][0]["reason"]


def test_a_tiny_rate_is_held_by_the_smallest_deployment_which_idles(asked):
    status, told = asked(rate=0.05, gpus=4, tensor_parallel=None)

    assert status == 0 and told["best"]["deployment"] == "TP1 x 1"
    assert any("it idles most of the time" in note for note in told["notes"])


def test_one_token_has_no_time_per_further_token(asked):
    status, told = asked(output=1, tpot_p99=None)

    assert status == 0 and told["best"]["layout"] == "aggregated"
    assert any("an answer of one token ends with its prompt" in note for note in told["notes"])
    assert list(told["best"]["metrics"]) == ["ttft_ms.p99"]


def test_a_price_gives_costs(asked):
    _, told = asked(prices="2.5", **EASY)
    best = told["best"]

    assert best["cost_per_hour"] == 2.5
    # a million tokens of 8 a request take 125,000 / rate seconds
    assert best["cost_per_million_output_tokens"] == pytest.approx(2.5 / 3600 * 125_000 / best["rate"])


def test_a_file_with_prices_has_that_of_the_card(asked, tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text("[prices.h100-sxm-80gb]\nper_gpu_hour = 3.0\ncurrency = 'EUR'\nsource = 's'\ndate = '2026-01-01'")
    _, told = asked(prices=path, **EASY)
    experiment = tomllib.loads((tmp_path / "plan/experiment.toml").read_text())

    assert told["best"]["cost_per_hour"] == 3.0
    assert experiment["prices"]["h100-sxm-80gb"]["currency"] == "EUR"


@pytest.mark.parametrize(("engine", "version", "words"), [
    ("vllm", "0.10", "vLLM 0.10.1"), ("vllm", "v0.33.0", "vLLM 0.33.0"), ("sglang", None, "SGLang 0.5.23"),
    ("tensorrt_llm", None, "TensorRT-LLM 1.2")])
def test_engines_and_versions(asked, tmp_path, engine, version, words):
    status, told = asked(engine=engine, engine_version=version, **EASY)
    table = tomllib.loads((tmp_path / "plan/experiment.toml").read_text())["engine"]

    assert (status, told["engine_version"], told["answer"]) == (0, words, told["answer"]), told
    assert table["scheduler"] == engine and table.get("vllm_version") in (None, "0.10", "0.33")


def test_routers_run_at_the_rate_that_the_best_deployment_holds(asked):
    _, told = asked("--routers", "round_robin,random", no_split=True)
    found = {each["deployment"]: each for each in told["studies"]["routers"]["deployments"]}

    assert set(found) == {"round_robin", "random"}
    assert {each["rate"] for each in found.values()} == {told["best"]["rate"]}
    assert found["random"]["metrics"]["ttft_ms.p99"] > found["round_robin"]["metrics"]["ttft_ms.p99"]


def test_a_server_is_compared_with_the_plan(asked):
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 2 --max-model-len 8192 --seed 1"
    status, told = asked("--from", f"{line} --cpu-offload-gb 4", model=None, gpus=None, rate="1")
    server = told["studies"]["server_study"]["deployments"][0]

    assert status == 0 and told["gpus"] == 1 and told["max_model_len"] == 8192
    assert any(note.startswith("--from: not modelled: --cpu-offload-gb (") for note in told["notes"])
    assert server["rate"] > 1 and "more than the 1 that are asked" in told["server"]
    _, told = asked("--from", line, model=None, gpus=None, out="largest")

    assert told["best"]["rate"] > 2 * server["rate"]        # two sequences at once are few
    assert "more for each GPU (TP1 x 1)" in told["server"]


def test_a_mixture_spreads_its_experts(asked):
    status, told = asked(model="qwen3-30b-a3b", gpus=2, tensor_parallel=None, input=200, output=8)
    layouts = {(each["tensor_parallel"], each["data_parallel"], each["expert_parallel"]) for each in told["fits"]}

    assert status == 0 and {(2, 1, 1), (2, 1, 2), (1, 2, 2)} <= layouts


def test_more_gpus_are_searched_on_a_part_of_them(asked):
    status, told = asked(gpus=16, no_split=True, input=200, output=4)
    part, whole = (told["studies"][name]["deployments"] for name in ("part_of_study", "study"))

    assert status == 0 and {each["gpus"] for each in part} == {8}
    assert told["best"]["deployment"] == "TP1 x 16"
    assert told["best"]["rate"] == pytest.approx(2 * part[0]["rate"], rel=0.25)
    assert {each["gpus"] for each in whole} == {16}


def test_the_answer_fits_a_screen(asked, tmp_path, capsys):
    asked()
    status = cli.main(["plan", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2", "--input", "800", "--output", "20",
                       "--ttft-p99", "500", "--tpot-p99", "40", "--tensor-parallel", "1", "--out",
                       str(tmp_path / "plan")])
    lines = capsys.readouterr().out.splitlines()

    assert status == 0
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert lines[0] == f"llama-3.1-8b on 2 h100-sxm-80gb, vLLM {behaviour_of(None).release}"
    assert any(line.startswith("largest rate of 2 GPUs: ") for line in lines)
    assert any(line.endswith("p99, ms") for line in lines)
    assert "  python -m simulator run study/winners/0001.toml" in lines
    assert any(line.startswith("note: --gpu h100 is taken as h100-sxm-80gb") for line in lines)


def test_an_experiment_that_was_changed_stays(asked, tmp_path):
    asked(**EASY)
    path = tmp_path / "plan/experiment.toml"
    path.write_text(path.read_text() + "# mine\n")
    status, message = asked(**EASY)

    assert status == 2 and "--overwrite replaces it" in message and "# mine" in path.read_text()
    assert asked("--overwrite", **EASY)[0] == 0 and "# mine" not in path.read_text()


def test_another_question_takes_another_folder_or_replaces_it(asked):
    asked(**EASY)
    status, message = asked(**EASY | {"tpot_p99": None})

    assert status == 2 and "--out chooses another directory" in message
    assert asked("--overwrite", **EASY | {"tpot_p99": None})[0] == 0


@pytest.mark.slow
def test_an_interrupted_plan_shows_what_it_has_and_goes_on(tmp_path, heeded_signals):
    command = [sys.executable, "-m", "simulator", "plan", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--gpus", "8",
               "--input", "3000", "--output", "400", "--ttft-p99", "2000", "--tpot-p99", "40", "--out",
               str(tmp_path / "plan"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not list((tmp_path / "plan").glob("study/segments/*")):
            assert running.poll() is None
            time.sleep(0.05)
        os.kill(running.pid, signal.SIGINT)
        out, err = running.communicate()
    told = json.loads(out)

    assert running.returncode == 130 and "run again to go on" in err
    assert not told["studies"]["study"]["complete"] and (tmp_path / "plan/study.toml").exists()


def test_a_stopped_search_for_a_rate_shows_what_ended(tmp_path, monkeypatch, capsys):
    asked = []

    def is_over(watch):
        asked.append(watch)
        return len(asked) > 3               # polled before each run: three run

    monkeypatch.setattr("simulator.study.watch.Watch.is_over", is_over)
    status = cli.main(["plan", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--gpus", "8", "--input", "800", "--output",
                       "20", "--rate", "90", "--ttft-p99", "500", "--no-split", "--json",
                       "--out", str(tmp_path / "plan")])
    told = json.loads(capsys.readouterr().out)

    assert status in (0, 3) and not told["studies"]["study"]["complete"]
    assert len(told["studies"]["study"]["deployments"]) == 3
