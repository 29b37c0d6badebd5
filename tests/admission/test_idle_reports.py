"""Reports of idle replicas are as fresh as the look at them, whoever else looks."""
import pytest

import simulator

EXPERIMENT = """
topology = {replicas = 2}
engine = {num_gpu_blocks = 100, max_model_len = 512}
latency = {backend = "linear", base_us = 20000, per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}
cluster = {gateway_queue = {saturation = {detector = "utilisation", staleness_s = 0.001}}}
model = {name = "llama-3.2-1b"}
hardware = {name = "h100-sxm-80gb"}
workload = {type = "trace", path = "t.csv", time_origin = "trace"}
"""


@pytest.mark.parametrize("values", [
    {}, {"output.iterations": False}, {"output.replica_samples_s": 0.01}, {"topology.data_parallel": 2}])
def test_a_queue_in_front_of_idle_replicas_lets_requests_pass(tmp_path, values):
    # Both replicas have done nothing for a second when the first request comes: their last change is older than 1 ms.
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n1,10,2\n2,10,2\n")
    result = simulator.run(tmp_path / "a.toml", values)

    assert result.requests["scheduled_ns"].tolist() == [1_000_000_000, 2_000_000_000]
    assert result.requests["completed_ns"].tolist() == [1_040_000_000, 2_040_000_000]
