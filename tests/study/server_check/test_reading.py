"""Files of a server's metrics, as one series."""
import json

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.study.server_check.reading import read_series
from simulator.study.server_check.series import COUNTERS, GAUGES, Facts, ServerSeries
from support.planted import range_answer

PAGE = """# HELP vllm:num_requests_running Requests in execution batches.
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_running{{engine="1"}} 3.0
vllm:kv_cache_usage_perc{{engine="0"}} 0.2
vllm:kv_cache_usage_perc{{engine="1"}} 0.4
vllm:request_success_total{{engine="0",finished_reason="stop"}} {stop}
vllm:request_success_total{{engine="0",finished_reason="length"}} 2.0
vllm:request_success_total{{engine="1",finished_reason="stop"}} 4.0
vllm:cache_config_info{{engine="0",block_size="16",num_gpu_blocks="100",enable_prefix_caching="False"}} 1.0
vllm:cache_config_info{{engine="1",block_size="16",num_gpu_blocks="102",enable_prefix_caching="False"}} 1.0
vllm:request_prompt_tokens_bucket{{engine="0",le="2000.0"}} 1.0
vllm:request_prompt_tokens_bucket{{engine="0",le="+Inf"}} 1.0
"""
LOG = """INFO 12-31 23:59:50 [kv_cache_utils.py:1] GPU KV cache size: 45,000 tokens, Maximum concurrency
INFO 12-31 23:59:50 [loggers.py:1] Engine 000: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 20.0 \
tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 50.0%
INFO 01-01 00:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 200.0 tokens/s, Avg generation throughput: 30.0 \
tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 25.0%, Prefix cache hit rate: 40.0%
INFO 01-01 00:00:10 [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 10.0 \
tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 40.0%
"""


def test_pages_add_up_engines_and_keep_facts(tmp_path):
    for number, running in enumerate((1.0, 2.0, 5.0)):
        (tmp_path / f"page-{1_700_000_000 + 15 * number}.prom").write_text(PAGE.format(running=running, stop=number))

    found = read_series([tmp_path])

    assert np.diff(found.times_s).tolist() == [15, 15]
    assert found.values["running"].tolist() == [4, 5, 8]
    assert found.values["ended"].tolist() == [6, 7, 8]              # of both reasons and engines
    assert found.values["kv_usage"] == pytest.approx(0.3)           # a mean
    assert found.facts == Facts(1616.0, 2, 2000.0, False)           # 16 x 101 blocks of the mean engine


def test_a_page_with_times_of_its_own_needs_no_name(tmp_path):
    lines = [f"vllm:num_requests_running {count} {1_700_000_000_000 + 5000 * count}" for count in range(4)]
    (tmp_path / "federate.prom").write_text("\n".join(lines))

    found = read_series([tmp_path / "federate.prom"])

    assert found.times_s.tolist() == [1.7e9, 1.7e9 + 5, 1.7e9 + 10, 1.7e9 + 15]
    assert found.values["running"].tolist() == [0, 1, 2, 3]


def test_a_restart_goes_on_where_the_counter_ended(tmp_path):
    values = [[1000 + 15 * number, str(count)] for number, count in enumerate((10, 30, 5, 8))]
    metrics = ("vllm:generation_tokens_total", "vllm:num_requests_running")
    answers = [{"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {"__name__": metric, "instance": "a"}, "values": values}]}} for metric in metrics]
    (tmp_path / "prom.json").write_text(json.dumps(answers))

    found = read_series([tmp_path / "prom.json"])

    assert found.values["output_tokens"].tolist() == [10, 30, 35, 38]
    assert found.values["running"].tolist() == [10, 30, 5, 8]       # a gauge may fall
    assert found.restarts == 1


def test_the_answer_of_a_range_query_reads_back(tmp_path):
    rng = np.random.default_rng(3)
    times_s = np.arange(4) * 15.0
    values = {name: np.cumsum(rng.integers(0, 9, 4)).astype(float) for name in (*GAUGES, *COUNTERS)}
    made = ServerSeries(times_s, values, Facts(32_000.0, 2, 5000.0, True))
    (tmp_path / "prom.json").write_text(json.dumps(range_answer(made)))

    found = read_series([tmp_path / "prom.json"])

    assert (found.times_s - found.times_s[0]).tolist() == times_s.tolist()
    assert found.facts == made.facts
    for name, column in values.items():
        assert found.values[name] == pytest.approx(column)


def test_a_reading_that_one_engine_misses_is_missing(tmp_path):
    def result(engine, values):
        return {"metric": {"__name__": "vllm:num_requests_running", "engine": engine}, "values": values}
    answer = {"data": {"resultType": "matrix", "result": [
        result("0", [[0, "1"], [15, "2"], [30, "3"]]), result("1", [[0, "1"], [30, "1"]])]}}
    (tmp_path / "prom.json").write_text(json.dumps(answer))

    assert read_series([tmp_path / "prom.json"]).values["running"] == pytest.approx([2, np.nan, 4], nan_ok=True)


def test_lines_of_a_log_cross_the_year(tmp_path):
    (tmp_path / "vllm.log").write_text(LOG)

    found = read_series([tmp_path / "vllm.log"])

    assert np.diff(found.times_s).tolist() == [10, 10]
    assert found.values["waiting"].tolist() == [1, 0, 0]
    assert found.values["prompt_tokens"].tolist() == [0, 2000, 2000]        # 200 tokens/s for 10 s
    assert found.values["hit_share"].tolist() == [0.5, 0.4, 0.4]
    assert found.facts == Facts(45_000.0, 1, None, None)


def test_all_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "other.prom").write_text("node_load1 3.0\n")
    (tmp_path / "vector.json").write_text('{"data": {"resultType": "vector", "result": []}}')
    (tmp_path / "broken.json").write_text('{"data": ')
    files = [tmp_path / name for name in ("other.prom", "vector.json", "broken.json", "absent.prom")]

    with pytest.raises(InputErrors) as refused:
        read_series(files)

    said = refused.value.faults
    assert [fault.partition(":")[0] for fault in said] == [str(file) for file in files]
    assert "no metric of vLLM" in said[0] and "expected resultType matrix, found vector" in said[1]
    assert "truncated" in said[2] and "no such file" in said[3]


def test_two_readings_are_too_few(tmp_path):
    lines = [f"vllm:num_requests_running 1 {time_ms}" for time_ms in (1_700_000_000_000, 1_700_000_005_000)]
    (tmp_path / "a.prom").write_text("\n".join(lines))

    with pytest.raises(InputErrors, match="2 readings at different times, expected at least 3"):
        read_series([tmp_path / "a.prom"])
