"""API servers refuse requests beyond max_num_queued_reqs and max_num_queued_tokens: by hand, and beside a replay."""
import json

import numpy as np
import pytest

import simulator
from simulator import cli
from simulator.domain import records
from simulator.errors import InputErrors

REQS, TOKENS = "max_num_queued_reqs", "max_num_queued_tokens"
# Iterations of 10 ms, one request at a time: a request of n outputs takes n x 10 ms once it begins.
ONE_BY_ONE = """
engine = {max_model_len = 1000, num_gpu_blocks = 1000, max_num_seqs = 1, max_num_batched_tokens = 64}
workload = {type = "trace", path = "trace.csv"}
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
"""
# Some requests wait, others are refused, by both limits.
BUSY = """
seed = %(seed)d
topology = {replicas = 2, data_parallel = %(ranks)d}
engine = {max_model_len = 1000, num_gpu_blocks = 60, max_num_seqs = 3, max_num_batched_tokens = 64%(engine)s}
latency = {backend = "linear", host = {api_server_count = 1%(host)s}}
cluster = {routing = {policy = "random"}}
[workload]
type = "synthetic"
num_requests = 150
arrival = {process = "poisson", rate_per_s = 250.0}
prompt_tokens = {distribution = "uniform", min = 10, max = 150}
output_tokens = {distribution = "uniform", min = 1, max = 9}
"""


@pytest.fixture
def causes(tmp_path):
    """Return the causes of requests of (arrival in ms, prompt tokens, outputs)."""
    def causes(requests, **keys):
        rows = [f"{ms / 1e3},{tokens},{outputs}" for ms, tokens, outputs in requests]
        (tmp_path / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]))
        (tmp_path / "a.toml").write_text(ONE_BY_ONE)
        found = simulator.run(tmp_path / "a.toml", {name.replace("__", "."): value for name, value in keys.items()})
        return [records.CAUSE_NAMES[cause] for cause in found.requests["cause"]], found
    return causes


def test_requests_that_wait_and_run_count_until_they_are_complete(causes):
    # The first runs until 20 ms, the second until 40; at 5 both are there, at 25 one.
    found, result = causes([(0, 10, 2), (1, 10, 2), (5, 10, 2), (25, 10, 1)], engine__max_num_queued_reqs=2)

    assert found == ["", "", REQS, ""]
    assert result.summary["requests"]["completed"] == 3 and result.summary["by_cause"] == {"rejected": {REQS: 1}}
    assert result.requests["status"].tolist()[2] == records.REJECTED
    assert result.summary["diagnosis"] == [
        f"{REQS}: no gateway sends a refused request elsewhere; its client sends it again with "
        "[workload.client_retry]"]


def test_prompts_count_in_whole_until_their_first_token(causes):
    # A prompt of 100 takes two iterations, until 20 ms: at 15 it counts whole. At 25 it decodes, and 10 tokens wait.
    found, _ = causes([(0, 100, 9), (5, 10, 1), (15, 10, 1), (25, 10, 1)], engine__max_num_queued_tokens=110)

    assert found == ["", "", TOKENS, ""]


def test_the_tokens_of_the_request_itself_do_not_count(causes):
    found, _ = causes([(0, 10, 2), (1, 900, 1), (2, 10, 1)], engine__max_num_queued_tokens=11)

    assert found == ["", "", TOKENS]


def test_nothing_passes_a_limit_of_none(causes):
    assert causes([(0, 10, 2), (1, 10, 1)], engine__max_num_queued_reqs=0)[0] == [REQS] * 2
    assert causes([(0, 10, 2), (1, 10, 1)], engine__max_num_queued_tokens=0)[0] == [TOKENS] * 2


def test_requests_are_checked_again_once_they_are_tokenized(causes):
    # Both are tokenized until 20 ms, side by side, and no request is in hand when they come; then one finds the other.
    found, result = causes([(0, 10, 1), (0, 10, 1), (45, 10, 1)], engine__max_num_queued_reqs=1,
                           latency__host__front_end_us=10_000.0)

    assert found == ["", REQS, ""]
    assert result.requests["enqueued_ns"].tolist() == [20_000_000, -1, 55_000_000]


def test_clients_that_gave_up_are_out_of_hand(tmp_path):
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n"
                                        "0,10,9,\n0,10,1,0.015\n0.01,10,1,\n0.02,10,1,\n")
    (tmp_path / "a.toml").write_text(ONE_BY_ONE)
    found = simulator.run(tmp_path / "a.toml", {"engine.max_num_queued_reqs": 2})

    assert found.requests["status"].tolist() == [
        records.COMPLETED, records.TIMED_OUT, records.REJECTED, records.COMPLETED]


def busy(folder, seed=1, ranks=1, engine="", host="", **keys):
    path = folder / f"busy{seed}{ranks}.toml"
    path.write_text(BUSY % {"seed": seed, "ranks": ranks, "engine": engine, "host": host})
    return simulator.run(path, keys)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("limits", [(4, None), (None, 300), (9, 500)])
def test_each_server_refuses_as_a_replay_of_its_requests(tmp_path, limits, ranks):
    given = "".join(f", {name} = {limit}" for name, limit in zip((REQS, TOKENS), limits, strict=True)
                    if limit is not None)
    rows = busy(tmp_path, ranks=ranks, engine=given).requests
    hands, refused = ([], []), 0
    for row in np.argsort(rows["arrival_ns"], kind="stable"):
        now_ns, server = rows["arrival_ns"][row], hands[rows["replica"][row] // ranks]
        there = [each for each in server if rows["completed_ns"][each] >= now_ns]
        prompts = sum(int(rows["prompt_tokens"][each]) for each in there if rows["first_token_ns"][each] >= now_ns)
        expected = ""
        if limits[1] is not None and prompts >= limits[1]:
            expected = TOKENS
        if limits[0] is not None and len(there) >= limits[0]:
            expected = REQS
        assert records.CAUSE_NAMES[rows["cause"][row]] == expected
        if not expected:
            server.append(row)
        refused += expected != ""
    assert 10 < refused < 130


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("host", ["", ", front_end_us = 2000.0"])
def test_fast_forward_changes_nothing(tmp_path, ranks, host):
    found = [busy(tmp_path, seed=3, ranks=ranks, engine=f", {REQS} = 6, fast_forward = {text}", host=host)
             for text in ("true", "false")]

    assert found[0].requests.tobytes() == found[1].requests.tobytes()
    assert found[0].summary["by_cause"]["rejected"][REQS] > 10


def test_refused_requests_take_no_turn_among_the_ranks(tmp_path):
    # A refused request is at no rank: vLLM's front end, whose scan of the ranks begins one further each time, never saw
    # it. Without it all others go to the ranks to which they went with it.
    rows = ["0,10,9", "0.001,10,9", "0.002,10,9", "0.2,10,1", "0.3,10,1"]
    text = BUSY.partition("[workload]")[0] % {"seed": 1, "ranks": 3, "engine": f", {REQS} = 2", "host": ""}
    text = text.replace("replicas = 2", "replicas = 1") + 'workload = {type = "trace", path = "trace.csv"}'
    (tmp_path / "a.toml").write_text(text)
    replicas = []
    for chosen in (rows, [*rows[:2], *rows[3:]]):
        (tmp_path / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *chosen]))
        found = simulator.run(tmp_path / "a.toml").requests
        replicas.append(found["replica"][found["status"] == records.COMPLETED].tolist())

    assert replicas[0] == replicas[1] and len(replicas[0]) == 4


def test_idle_limits_change_no_result(tmp_path):
    assert busy(tmp_path, engine=f", {REQS} = 1000, {TOKENS} = 1000000").requests.tobytes() == busy(
        tmp_path).requests.tobytes()


@pytest.mark.parametrize("version", ["0.10"])
def test_versions_without_them_refuse_them(causes, version):
    with pytest.raises(InputErrors) as raised:
        causes([(0, 1, 1)], engine__max_num_queued_reqs=1, engine__max_num_queued_tokens=0,
               engine__vllm_version=version)

    assert [f"engine.{key}: expected none, found {value}: vLLM 0.10.1 has no such argument" in str(raised.value)
            for key, value in ((REQS, 1), (TOKENS, 0))] == [True, True]


def test_the_tokens_of_several_api_servers_are_refused(tmp_path):
    with pytest.raises(InputErrors, match=r"engine\.max_num_queued_tokens: expected none with 3 API servers, found 9"):
        busy(tmp_path, ranks=3, engine=f", {TOKENS} = 9", host=", queue_base_us = 0.0", **{
            "latency.host.api_server_count": 3})


def test_from_and_export_have_the_flags(capsys, tmp_path):
    line = "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --max-num-queued-reqs 300 --max-num-queued-tokens 60000"
    assert cli.main(["from", line, "--gpu", "h100-sxm-80gb", "--out", str(tmp_path / "a.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_modelled"] == []
    assert cli.main(["export", str(tmp_path / "a.toml"), "--as", "vllm"]) == 0
    out = capsys.readouterr().out
    assert "--max-num-queued-reqs 300" in out and "--max-num-queued-tokens 60000" in out


def test_from_takes_the_api_servers_that_count_prompts(capsys):
    line = "vllm serve Qwen/Qwen3-8B -dp 2 --max-num-queued-tokens 60000"
    assert cli.main(["from", line, "--gpu", "h100-sxm-80gb"]) == 3
    assert "each counts the prompts that it has itself" in " ".join(capsys.readouterr().err.split())
    assert cli.main(["from", f"{line} --api-server-count 1", "--gpu", "h100-sxm-80gb"]) == 0
    assert "max_num_queued_tokens = 60000" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "version", "key", "status"), [
    ("Qwen/Qwen3-8B", "0.33", "engine.prefill_schedule_interval", 0),
    ("Qwen/Qwen3-8B", "0.32", "", 0),
    ("Qwen/Qwen3-30B-A3B -dp 2 -ep", "0.32", "engine.data_parallel.prefill_schedule_interval", 0)])
def test_from_takes_the_interval_between_prompts_where_it_acts(capsys, line, version, key, status):
    command = f"vllm serve {line} --max-model-len 8192 --prefill-schedule-interval 4"
    assert cli.main(["from", command, "--gpu", "h100-sxm-80gb", "--gpus", "2", "--version", version,
                     "--json"]) == status
    lists = json.loads(capsys.readouterr().out)

    assert [row[2] for row in lists["taken"] if row[0] == "--prefill-schedule-interval"] == ([key] if key else [])
    assert ("--prefill-schedule-interval" in [row[0] for row in lists["without_effect"]]) == (not key)
