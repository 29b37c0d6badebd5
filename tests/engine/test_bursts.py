"""Requests that wait for others of a window, with which they are placed, on timelines worked out by hand."""
import pytest

import simulator

MS = 1_000_000
EXPERIMENT = """
engine = {max_num_seqs = 4, max_model_len = 100, num_gpu_blocks = 100, block_size = 16, async_scheduling = false}
topology = {replicas = 2}
cluster.routing = {policy = "weighted", scorers = [{name = "burst-prefix", weight = 1.0, window_s = 0.1}]}
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
[workload]
type = "trace"
path = "requests.jsonl"
format = "mooncake"
"""
ROW = '{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": [%d]}'


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_all_requests_of_a_window_are_sent_when_it_ends(tmp_path, fast):
    # The first window ends at 100 ms, the next begins at 150. In each the equal prompts go to one replica.
    rows = [(0, 32, 1), (30, 32, 2), (50, 32, 1), (100, 32, 2), (150, 32, 1), (200, 20, 3)]
    (tmp_path / "requests.jsonl").write_text("\n".join(ROW % row for row in rows) + "\n")
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    result = simulator.run(tmp_path / "experiment.toml", {"engine.fast_forward": fast})

    assert (result.requests["dispatched_ns"] / MS).tolist() == [100, 100, 100, 100, 250, 250]
    assert (result.requests["completed_ns"] / MS).tolist() == [110] * 4 + [260] * 2
    assert result.requests["replica"].tolist() == [0, 1, 0, 1, 0, 1]
