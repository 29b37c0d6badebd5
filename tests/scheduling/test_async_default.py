"""The default of async_scheduling with drafts, by version."""
import pytest

from simulator.config.load import load_experiment

PLAIN = """
latency.backend = "linear"
engine.max_model_len = 1000
engine.num_gpu_blocks = 100
workload = {type = "trace", path = "t.csv"}
"""
N_GRAMS = {"engine.speculative": {"num_tokens": 2, "num_lookahead_tokens": 0}}


@pytest.mark.parametrize(("version", "plain", "with_n_grams"), [
    ("0.10", False, False), ("0.32", True, False), ("0.33", True, True)])
def test_vllm_schedules_asynchronously_by_default_as_its_version_does(tmp_path, version, plain, with_n_grams):
    (tmp_path / "a.toml").write_text(PLAIN)

    def is_async(**keys):
        given = {"engine.vllm_version": version} | keys
        return load_experiment(tmp_path / "a.toml", given).engine.parameters.async_scheduling

    assert is_async() is plain
    assert is_async(**N_GRAMS) is with_n_grams
    assert is_async(**{"engine.async_scheduling": False}) is False
