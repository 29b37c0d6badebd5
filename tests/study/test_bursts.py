"""Runs of a server with all requests sent at once, in the words of `vllm bench serve`, are replayed and compared."""
import csv
import hashlib

import pytest

from simulator.errors import InputErrors
from simulator.study.accuracy.burst import METRICS, NEEDED
from simulator.study.accuracy.data_set import open_all
from simulator.study.accuracy.scoring import score
from support.data_sets import PROVENANCE, TEN_MS

SET = 'name = "burst"' + PROVENANCE + """fits = []
form = "burst"
[reader]
framework = "{framework}"
hardware = "h100-sxm-80gb"
template_tokens = 9
shared_tokens = {shared}
[experiment.engine]
enable_prefix_caching = false
""" + TEN_MS
VLLM = "vllm serve Qwen/Qwen3-8B -tp 2 --async-scheduling --max-num-batched-tokens 4096"


@pytest.fixture
def opened(tmp_path):
    def of(*serves, framework="vllm", load="random 2K input", requests="4", clients="", shared=0):
        row = dict.fromkeys(METRICS, "20.0") | {
            "Successful requests": requests, "Total input tokens": "400", "Total generated tokens": "12",
            "Maximum request concurrency": clients, "sub": load}
        with (tmp_path / "points.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [*NEEDED, "Maximum request concurrency"])
            writer.writeheader()
            writer.writerows(row | {"serve": serve} for serve in serves)
        sha = hashlib.sha256((tmp_path / "points.csv").read_bytes()).hexdigest()
        (tmp_path / "dataset.toml").write_text(SET.format(framework=framework, shared=shared) + (
            f'[[files]]\nrole = "points"\npath = "points.csv"\nsha256 = "{sha}"\n'))
        return open_all([tmp_path], tmp_path)[0]

    return of


def test_a_command_line_is_the_experiment(opened):
    case, = opened(VLLM, "vllm serve Qwen/Qwen3-8B").cases()[:1]

    assert case.tables["model"] == {"name": "qwen3-8b"} and case.tables["topology"] == {"tensor_parallel": 2}
    assert case.tables["engine"] == {"scheduler": "vllm", "async_scheduling": True, "max_num_batched_tokens": 4096}
    assert case.tables["workload"]["prompt_tokens"]["tokens"] == 100 + 9        # 400 / 4, and the chat template
    assert case.tables["workload"]["output_tokens"]["tokens"] == 3
    assert case.measured == {"ttft": 20.0, "tpot": 20.0, "makespan": 20.0, "throughput": 20.0}


def test_all_are_sent_at_once_or_by_so_many_clients(opened):
    burst, = opened(VLLM).cases()
    loop, = opened(VLLM, clients="2").cases()

    assert burst.tables["workload"]["arrival"]["rate_per_s"] == float("inf")
    assert loop.tables["workload"]["load"] == {"mode": "concurrency", "concurrency": 2}


def test_requests_share_the_head_of_the_template(opened):
    case, = opened(VLLM, shared=7).cases()

    assert case.tables["workload"]["system_prompts"] == {"num_tokens": 7}
    assert case.tables["workload"]["prompt_tokens"]["tokens"] == 100 + 9 - 7    # which are added to these
    assert "system_prompts" not in opened(VLLM).cases()[0].tables["workload"]
    with pytest.raises(InputErrors, match=r"reader\.shared_tokens: expected at most template_tokens, 9, found 10"):
        opened(VLLM, shared=10).cases()


def test_rows_of_other_servers_and_loads_are_passed_over(opened):
    serves = (VLLM, "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --port 1", "trtllm-serve Qwen/Qwen3-8B")
    schedulers = [[case.tables["engine"]["scheduler"] for case in opened(*serves, framework=framework).cases()]
                  for framework in ("vllm", "sglang", "trtllm")]

    assert schedulers == [["vllm"], ["sglang"], ["tensorrt_llm"]]
    with pytest.raises(InputErrors, match="no row has"):
        opened(VLLM, load="ShareGPT batch size 4").cases()


@pytest.mark.parametrize(("serve", "why"), [
    ("vllm serve Qwen/Qwen3-8B --enforce-eager", "points.csv:2: serve: --enforce-eager: not replayed"),
    ("vllm serve nobody/nothing", "points.csv:2: serve: nobody/nothing: its shape is not known")],
    ids=["option", "model"])
def test_what_cannot_be_replayed_is_refused_with_its_line(opened, serve, why):
    with pytest.raises(InputErrors) as refused:
        opened(serve).cases()

    assert why in str(refused.value)


def test_a_number_that_is_none_is_refused(opened):
    with pytest.raises(InputErrors, match=r"points\.csv:2: Successful requests: expected a number above 0, found '-'"):
        opened(VLLM, requests="-").cases()


def test_a_burst_is_scored(opened):
    rows = {row.metric: row for row in score([opened(VLLM)], ["linear"]).score.rows}

    # an iteration takes 10 ms, all four are in each: TTFT and TPOT are 10 ms of 20, three iterations 0.03 s of 20
    assert rows["ttft"].mean_error_pct == pytest.approx(-50.0) and rows["tpot"].mean_error_pct == pytest.approx(-50.0)
    assert rows["makespan"].mean_error_pct == pytest.approx(-99.85)
