"""Answers of range queries, in each layout, and their refusals."""
import json

import pytest

from simulator.errors import InputErrors
from simulator.study.server_metrics import files
from simulator.study.server_metrics.instances import instances_of
from support.metric_files import source

RUNNING = {"metric": {"__name__": "vllm:num_requests_running", "instance": "a:8000"}, "values": [[10, "1"], [25, "2"]]}
OLD = {"metric": {"__name__": "vllm:gpu_cache_usage_perc", "instance": "a:8000"}, "values": [[10, "0.5"], [25, "NaN"]]}


@pytest.mark.parametrize("wrap", [
    lambda series: {"status": "success", "data": {"resultType": "matrix", "result": series}},
    lambda series: [{"data": {"result": [each]}} for each in series],
    lambda series: {"one": {"data": {"result": series}}},
    lambda series: "\n".join(json.dumps({"data": {"result": [each]}}) for each in series)])
def test_answers_of_prometheus_are_read_in_each_layout(tmp_path, wrap):
    found = files.read(source(tmp_path, wrap([RUNNING, OLD])))

    assert [(each.name, each.times_s.tolist(), each.values.tolist()) for each in found] == [
        ("num_requests_running", [10.0, 25.0], [1.0, 2.0]), ("kv_cache_usage_perc", [10.0], [0.5])]


@pytest.mark.parametrize(("content", "message"), [
    ([{"status": "error", "error": "bad query"}, {"data": {"result": [RUNNING]}}], "expected success, found bad query"),
    ({"data": {"result": [RUNNING | {"values": [[25, "1"], [10, "2"]]}]}}, "expected ascending times"),
    ({"data": {"result": [RUNNING | {"values": [[25, "x"]]}]}}, "expected pairs of time and text"),
    ({"data": {"result": [{"metric": RUNNING["metric"], "value": [1, "2"]}]}}, "an instant query has one value"),
    ({"data": {"resultType": "vector", "result": []}}, "expected resultType matrix, found vector"),
    ({"time_s": 1.0, "samples": 3}, "expected a page of `observe`; found TypeError"),
    ("name 1", "no metric of vLLM .* expected pages of Prometheus' text")])
def test_faults_of_metrics_are_named(tmp_path, content, message):
    with pytest.raises(InputErrors, match=message):
        files.read(source(tmp_path, content))


def test_labels_are_added_and_models_kept_apart(tmp_path):
    def ended(reason, value, model="m"):
        return {"metric": {"__name__": "vllm:request_success_total", "finished_reason": reason, "model_name": model},
                "values": [[10, value]]}

    def instances(*series):
        return instances_of(files.read(source(tmp_path, {"data": {"result": series}})))

    assert instances(ended("stop", "3"), ended("length", "4"))[0].values["request_success_total"] == 7
    with pytest.raises(InputErrors, match="series of 2 models, m, n"):
        instances(ended("stop", "3"), ended("stop", "3", "n"))
    with pytest.raises(InputErrors, match="no series of vLLM found"):
        instances({"metric": {"__name__": "up"}, "values": [[10, "1"]]})
    with pytest.raises(InputErrors, match="le of request_prompt_tokens_bucket: expected a number, found 'x'"):
        instances({"metric": {"__name__": "vllm:request_prompt_tokens_bucket", "le": "x"}, "values": [[10, "1"]]})


def test_parts_from_files_and_old_names_count_once(tmp_path):
    old = {"metric": {"__name__": "vllm:gpu_prefix_cache_hits_total"}, "values": [[10, "3"], [25, "4"]]}
    new = {"metric": {"__name__": "vllm:prefix_cache_hits_total"}, "values": [[25, "4"], [40, "9"]]}
    found = [each for part in ([old, new], [new]) for each in files.read(source(tmp_path, {"data": {"result": part}}))]

    instance, = instances_of(found)
    assert (instance.times_s.tolist(), instance.values["prefix_cache_hits_total"].tolist()) == (
        [10, 25, 40], [3, 4, 9])


def test_pages_are_instances_too(tmp_path):
    page = ('vllm:request_prompt_tokens_bucket{{engine="1",le="+Inf"}} {0}\n'
            'vllm:num_requests_running{{engine="1"}} {0}\n')
    found = [each for number in (3, 5) for each in files.read(
        source(tmp_path, page.format(number), f"{1_700_000_000 + number}.prom"))]
    kept = {"time_s": 1_700_000_010, "samples": {'vllm:num_requests_running{engine="1"}': 8.0}}
    found += files.read(source(tmp_path, kept, "metrics.jsonl"))

    instance, = instances_of(found)
    assert (instance.name, (instance.times_s - 1.7e9).tolist()) == ("1", [3, 5, 10])
    assert instance.values["num_requests_running"].tolist() == [3, 5, 8]
    assert instance.buckets["request_prompt_tokens"][1][:2].tolist() == [[3], [5]]
