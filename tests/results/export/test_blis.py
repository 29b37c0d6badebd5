"""Files of BLIS have its fields, with its definitions."""
import json

import pytest

from results.export.runs import export, small_run

# Fields of a file that `blis replay --metrics-path` wrote.
TOTALS = ["instance_id", "completed_requests", "still_queued", "still_running", "injected_requests",
          "total_input_tokens", "total_output_tokens", "vllm_estimated_duration_s", "responses_per_sec",
          "tokens_per_sec", *(f"{name}_{which}_ms" for name in ("e2e", "ttft", "itl")
                              for which in ("mean", "p90", "p95", "p99")),
          "scheduling_delay_p99_ms", "preemption_count", "cache_hit_rate", "dropped_unservable",
          "length_capped_requests", "timed_out_requests", "requests"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export(small_run(tmp_path_factory.mktemp("small")), "blis", "--quiet")


def test_totals_are_those_of_the_run(exported):
    metrics = json.loads((exported / "metrics.json").read_text())

    assert list(metrics) == TOTALS
    assert (metrics["completed_requests"], metrics["injected_requests"]) == (3, 3)
    assert (metrics["total_input_tokens"], metrics["total_output_tokens"]) == (60, 5)
    assert metrics["vllm_estimated_duration_s"] == 0.03
    assert metrics["responses_per_sec"] == pytest.approx(100)
    assert metrics["e2e_mean_ms"] == pytest.approx(23)              # 20, 25, 24
    assert metrics["e2e_p90_ms"] == pytest.approx(24.8)             # 0.8 of the way from 24 to 25
    assert metrics["itl_mean_ms"] == metrics["itl_p99_ms"] == 10    # of the two requests with two tokens


def test_each_request_is_listed(exported):
    requests = json.loads((exported / "metrics.json").read_text())["requests"]

    assert requests[1] == {
        "arrived_at": 0.005, "requestID": "request_second", "num_prefill_tokens": 20, "num_decode_tokens": 2,
        "ttft_ms": 15, "itl_ms": 10, "e2e_ms": 25, "scheduling_delay_ms": 5, "handled_by": "instance_0"}
    assert [request.get("tenant_id") for request in requests] == ["a, b", None, "a, b"]


def test_results_are_those_of_completed_requests_in_microseconds(exported):
    results = json.loads((exported / "results.json").read_text())

    assert results[0] == {"request_id": "first", "ttft_us": 10_000, "e2e_us": 20_000, "input_tokens": 10,
                          "output_tokens": 2, "itl_mean_us": 10_000}
    assert "itl_mean_us" not in results[2]


def test_who_cannot_be_served_or_waits_too_long_is_counted_as_blis_does(tmp_path):
    # Blocks for 64 tokens; the second request is too long for any batch, the third gives up before its turn.
    rows = "arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n0,10,3,\n0,90,2,\n0,10,9,0.025\n"
    limits = {"engine.max_num_seqs": 1, "engine.max_model_len": 60}
    metrics = json.loads((export(small_run(tmp_path, rows, **limits), "blis", "--quiet") / "metrics.json").read_text())

    counted = ("injected_requests", "completed_requests", "dropped_unservable", "timed_out_requests",
               "total_input_tokens", "total_output_tokens")
    assert [metrics[name] for name in counted] == [3, 1, 1, 1, 20, 3]
    assert metrics["itl_mean_ms"] == 10
    assert len(metrics["requests"]) == 2


def test_without_token_times_there_is_no_answer(tmp_path, capsys):
    from simulator import cli
    out = small_run(tmp_path, **{"output.token_times": False})

    assert cli.main(["export", str(out), "--as", "blis"]) == 2
    assert "needs /token_times, which the run did not write; run again with --set output.token_times=true" in (
        capsys.readouterr().err)
    assert not out.with_name("out_blis").exists()
