"""Lines of statistics in logs of several versions."""
import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.study.server_metrics import statistics_lines
from support.metric_files import source

STATISTICS = (
    "INFO 11-30 08:00:{second} [loggers.py:248] Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation "
    "throughput: 40.0 tokens/s, Running: 3 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: "
    "25.0%\n")


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


def test_names_of_older_versions_are_known(tmp_path):
    line = ("INFO 03-01 08:00:{} metrics.py:455] Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 2.0 "
            "tokens/s, Running: 3 reqs, Swapped: 0 reqs, Pending: 7 reqs, GPU KV cache usage: 12.5%, CPU KV cache "
            "usage: 0.0%.\n")
    found = {each.name: each.values.tolist() for each in statistics_lines.read(
        source(tmp_path, line.format(10) + line.format(20)))}

    assert found["num_requests_waiting"] == [7, 7] and found["kv_cache_usage_perc"] == [0.125, 0.125]
    assert "prefix_cache_hit_rate" not in found


def test_gaps_clocks_set_back_and_the_year_end(tmp_path):
    line = STATISTICS.format(second="{}", prompt="10.0").replace("11-30 08:00:{}", "{}")
    times = ("12-31 23:59:40", "12-31 23:59:50", "01-01 00:00:00", "12-31 23:59:59", "01-01 00:00:10", "01-01 01:00:10")
    found = statistics_lines.read(source(tmp_path, "".join(map(line.format, times))))
    prompt = next(each for each in found if each.name == "prompt_tokens_total")

    assert np.diff(prompt.times_s).tolist() == [10, 10, 10, 3600]
    assert prompt.values.tolist() == [0, 100, 200, 300, 450]        # idle engines log nothing
