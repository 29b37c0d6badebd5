"""vLLM's auto_tune over simulated servers: its search, its lines."""
import re

import pytest

from simulator import cli
from simulator.errors import InputErrors
from simulator.study.tuning import auto_tune
from simulator.study.tuning.auto_tune import Benchmark, Variables, read_variables

NAMES = [name.upper() for name in Variables._fields]


@pytest.fixture
def script(monkeypatch, tmp_path, capsys):
    """Run the command with variables; return exit status, lines of result.txt, stderr."""
    def run(*options, **variables):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        status = cli.main(["tune", "configs/quickstart.toml", "--compat", "auto_tune", "--out", str(tmp_path / "out"),
                           *options])
        result = tmp_path / "out" / "result.txt"
        return status, result.read_text().splitlines() if result.exists() else None, capsys.readouterr().err

    return run


def searched(monkeypatch, e2el_of, throughput_of=lambda rate: 10.62, limit=100.0, **variables):
    """Search with benchmarks that are made up; return lines, and the rates of each."""
    rates = []

    def run(file, overrides, fixed, more):
        rate = more.get("workload.request_rate", "inf")
        rates.append((rate, more["workload.num_requests"]))
        pair = fixed["engine.max_num_seqs"], fixed["engine.max_num_batched_tokens"]
        return Benchmark(throughput_of(rate), e2el_of(rate, pair), 1.5)

    monkeypatch.setattr(auto_tune, "_run", run)
    text = {"MAX_LATENCY_ALLOWED_MS": str(limit), "NUM_SEQS_LIST": "8 16", "NUM_BATCHED_TOKENS_LIST": "512"} | variables
    _, lines, is_found = auto_tune.auto_tune("configs/quickstart.toml", [], text, lambda line: None)
    return lines[1:], rates, is_found


def test_rates_go_down_by_one_from_the_throughput_plus_one(monkeypatch):
    # 10.62 requests/s at once take too long: 11, 10, 9 and so on, of 100 requests each, until 7 holds.
    lines, rates, is_found = searched(
        monkeypatch, lambda rate, pair: 500.0 if rate == "inf" or rate > 7 else 99.994, NUM_SEQS_LIST="8")
    assert rates == [("inf", 1000), *((float(rate), 100) for rate in (11, 10, 9, 8, 7))]
    assert lines == [
        "max_num_seqs: 8, max_num_batched_tokens: 512, request_rate: 7, e2el: 99.99, throughput: 10.62, goodput: 1.50",
        "best_max_num_seqs: 8, best_num_batched_tokens: 512, best_throughput: 10.62, profile saved in: none"]
    assert is_found


def test_who_keeps_the_limit_at_once_is_not_asked_again_and_the_first_of_equals_is_best(monkeypatch):
    lines, rates, _ = searched(monkeypatch, lambda rate, pair: 100.0)
    assert rates == [("inf", 1000)] * 2
    assert [re.search("request_rate: (.+?),", line)[1] for line in lines[:2]] == ["inf", "inf"]
    assert lines[2].startswith("best_max_num_seqs: 8, ")


def test_who_keeps_it_never_is_told_so(monkeypatch):
    lines, rates, is_found = searched(monkeypatch, lambda rate, pair: 101.0 if pair[0] == 8 else 5.0)
    assert rates[:12] == [("inf", 1000), *((float(rate), 100) for rate in range(11, 0, -1))]
    assert lines[0] == "max_num_seqs: 8, max_num_batched_tokens: 512 does not meet latency requirement 100"
    assert lines[2].startswith("best_max_num_seqs: 16, ") and is_found
    lines, _, is_found = searched(monkeypatch, lambda rate, pair: 101.0)
    assert lines[-1] == ("best_max_num_seqs: 0, best_num_batched_tokens: 0, best_throughput: 0, profile saved in: none")
    assert not is_found


def test_simulated_servers(script):
    small = {"INPUT_LEN": "200", "OUTPUT_LEN": "10", "NUM_BATCHED_TOKENS_LIST": "2048", "MIN_CACHE_HIT_PCT": "50"}
    status, lines, told = script(NUM_SEQS_LIST="4 64", MAX_LATENCY_ALLOWED_MS="200", **small)
    number = r"[\d.]+"

    assert status == 0 and "using gpu_memory_utilization=0.98" in told
    assert re.fullmatch(r"hash:[0-9a-f]+", lines[0]) and len(lines) == 4
    for line, seqs in zip(lines[1:3], (4, 64), strict=True):
        assert re.fullmatch(f"max_num_seqs: {seqs}, max_num_batched_tokens: 2048, request_rate: {number}, e2el: "
                            f"{number}, throughput: {number}, goodput: {number}", line)
        assert float(re.search(f"e2el: ({number})", line)[1]) <= 200
    assert lines[3].startswith("best_max_num_seqs: 64, best_num_batched_tokens: 2048, best_throughput: ")


def test_model_and_tensor_parallel_are_those_of_the_variables(script):
    status, lines, told = script(MODEL="llama-3.1-70b", TP="1")
    assert status == 2 and lines is None
    assert "weights need 141.1 GB" in told and "no gpu_memory_utilization from 0.98 to 0.90" in told


def test_variables_are_refused_all_at_once():
    with pytest.raises(InputErrors) as caught:
        read_variables({"INPUT_LEN": "4096", "NUM_SEQS_LIST": "1, 2", "TP": "two", "MAX_LATENCY_ALLOWED_MS": "x",
                        "MIN_CACHE_HIT_PCT": "101"})
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "TP", "MAX_LATENCY_ALLOWED_MS", "NUM_SEQS_LIST", "INPUT_LEN(4096) + OUTPUT_LEN(16) = 4112, which is > "
        "MAX_MODEL_LEN = 4096", "MIN_CACHE_HIT_PCT"]
    assert read_variables({}) == Variables()


@pytest.mark.parametrize("options", [("--dry-run",), ("--stop-after", "1h"), ("--dask", "local")])
def test_it_goes_with_none_of_these(script, options):
    status, lines, told = script(*options)
    assert (status, lines) == (2, None) and "--compat auto_tune: goes with none of --dry-run" in told
