"""Files of metrics and logs, and their refusals."""
import json

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.study.measured.source import Source
from simulator.study.reconstruct import access_log, range_query, spans, statistics_lines
from simulator.study.reconstruct.access_log import UNKNOWN
from simulator.study.reconstruct.series import instances_of

RUNNING = {"metric": {"__name__": "vllm:num_requests_running", "instance": "a:8000"}, "values": [[10, "1"], [25, "2"]]}
OLD = {"metric": {"__name__": "vllm:gpu_cache_usage_perc", "instance": "a:8000"}, "values": [[10, "0.5"], [25, "NaN"]]}
STATISTICS = (
    "INFO 11-30 08:00:{second} [loggers.py:248] Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation "
    "throughput: 40.0 tokens/s, Running: 3 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: "
    "25.0%\n")


def source(tmp_path, text, name="file"):
    (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
    return Source(str(tmp_path / name))


@pytest.mark.parametrize("wrap", [
    lambda series: {"status": "success", "data": {"resultType": "matrix", "result": series}},
    lambda series: [{"data": {"result": [each]}} for each in series],
    lambda series: {"one": {"data": {"result": series}}},
    lambda series: "\n".join(json.dumps({"data": {"result": [each]}}) for each in series)])
def test_answers_of_prometheus_are_read_in_each_layout(tmp_path, wrap):
    found = range_query.read_metrics(source(tmp_path, wrap([RUNNING, OLD])))

    assert [(each.name, each.times_s.tolist(), each.values.tolist()) for each in found] == [
        ("num_requests_running", [10.0, 25.0], [1.0, 2.0]), ("kv_cache_usage_perc", [10.0], [0.5])]


@pytest.mark.parametrize(("content", "message"), [
    ([{"status": "error", "error": "bad query"}, {"data": {"result": [RUNNING]}}], "expected success, found bad query"),
    ({"data": {"result": [RUNNING | {"values": [[25, "1"], [10, "2"]]}]}}, "expected ascending times"),
    ({"data": {"result": [RUNNING | {"values": [[25, "x"]]}]}}, "expected pairs of time and text"),
    ({"data": {"result": [{"metric": RUNNING["metric"], "value": [1, "2"]}]}}, "an instant query has one value"),
    ("name 1", "expected the answers of Prometheus")])
def test_faults_of_metrics_are_named(tmp_path, content, message):
    with pytest.raises(InputErrors, match=message):
        range_query.read_metrics(source(tmp_path, content))


def test_labels_are_added_and_models_kept_apart(tmp_path):
    def ended(reason, value, model="m"):
        return {"metric": {"__name__": "vllm:request_success_total", "finished_reason": reason, "model_name": model},
                "values": [[10, value]]}

    def instances(*series):
        return instances_of(range_query.read(source(tmp_path, {"data": {"result": series}})))

    assert instances(ended("stop", "3"), ended("length", "4"))[0].values["request_success_total"] == 7
    with pytest.raises(InputErrors, match="series of 2 models, m, n"):
        instances(ended("stop", "3"), ended("stop", "3", "n"))
    with pytest.raises(InputErrors, match="no series of vLLM found"):
        instances({"metric": {"__name__": "up"}, "values": [[10, "1"]]})


def test_lines_of_statistics_become_counters_and_gauges(tmp_path):
    text = "".join(STATISTICS.format(second=second, prompt=prompt) for second, prompt in (
        ("10", "100.0"), ("20", "50.0"), ("30", "0.0")))
    found = {each.name: each.values.tolist() for each in statistics_lines.read(source(tmp_path, text))}

    assert found == {
        "prompt_tokens_total": [0.0, 500.0, 500.0], "generation_tokens_total": [0.0, 400.0, 800.0],
        "num_requests_running": [3.0] * 3, "num_requests_waiting": [1.0] * 3, "kv_cache_usage_perc": [0.125] * 3,
        "prefix_cache_hit_rate": [0.25] * 3}
    with pytest.raises(InputErrors, match="expected two lines"):
        statistics_lines.read(source(tmp_path, STATISTICS.format(second="10", prompt="1.0")))


def test_access_log_keeps_demand_and_leaves_out_faults_of_clients(tmp_path):
    found = access_log.read(source(tmp_path, (
        "timestamp,prompt_tokens,completion_tokens,latency_ms,status\n"
        "2026-11-30T08:00:02Z,10,5,1000,200\n2026-11-30T08:00:01+00:00,20,3,100,503\n"
        "2026-11-30T08:00:03Z,30,,100,400\n")))

    assert np.diff(found.arrival_s).tolist() == [1.0]
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([20, 10], [UNKNOWN, 5])
    assert found.resolution_s == 1.0
    assert "1 requests with a status from 400 on" in found.notes[0]


def test_times_of_ends_are_moved_back_by_the_latency(tmp_path):
    text = "completed_at,isl,osl,latency\n1800000010.5,10,5,2.25\n1800000011.5,10,5,0.5\n"

    assert access_log.read(source(tmp_path, text), is_end=True).arrival_s.tolist() == [1800000008.25, 1800000011.0]


@pytest.mark.parametrize(("text", "message"), [
    ("time,prompt_tokens\n1,2\n", 'column "num_decode_tokens" is missing'),
    ("time,isl,osl\nx,2,3\n", "time: expected seconds, an epoch time or an ISO date"),
    ("time,isl,osl\n1,-2,3\n", "expected a number of tokens"),
    ("time,ts,isl,osl\n1,1,2,3\n", "time, ts may each be arrived_at"),
    ("time,isl,osl,status\n1,2,3,404\n", "no request in it")])
def test_faults_of_logs_are_named(tmp_path, text, message):
    with pytest.raises(InputErrors, match=message):
        access_log.read(source(tmp_path, text))


def test_spans_of_both_layouts_are_read(tmp_path):
    listed = {"resourceSpans": [{"scopeSpans": [{"spans": [{
        "name": "llm_request", "startTimeUnixNano": "1800000000500000000", "attributes": [
            {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "12"}},
            {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": "7"}}]}, {
                "name": "other", "startTimeUnixNano": "1", "attributes": []}]}]}]}
    flat = {"name": "llm_request", "start_time": "2027-01-15T08:00:01Z",
            "attributes": {"gen_ai.usage.prompt_tokens": 12}}

    one = spans.read(source(tmp_path, listed))
    two = spans.read(source(tmp_path, "\n".join(map(json.dumps, (flat, listed)))))

    assert (one.arrival_s.tolist(), one.output_tokens.tolist()) == ([1800000000.5], [7])
    assert (two.arrival_s.tolist(), two.output_tokens.tolist()) == ([1800000000.5, 1800000001.0], [7, UNKNOWN])
    with pytest.raises(InputErrors, match="no span"):
        spans.read(source(tmp_path, {"spans": [{"name": "gen_ai.usage.", "attributes": {}}]}))
