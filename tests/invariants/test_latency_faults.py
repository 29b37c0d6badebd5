"""A latency model that fails stops the run, exactly when the iteration it cannot price comes."""
import pytest

from simulator.latency.python_model import PythonLatencyModel
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

CACHE = {"num_gpu_blocks": 1000, "block_size": 16, "enable_prefix_caching": False, "max_model_len": 1024}


class Limited(PythonLatencyModel):
    """Knows batches of up to 150 tokens of context."""

    def batch_us(self, shape):
        if shape.context_tokens > 150:
            raise ValueError("never measured")
        return 1000.0


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("outputs", [50, 51, 52, 60, 500])
def test_a_fault_in_a_planned_iteration_is_told_if_it_comes(fast_forward, outputs):
    # 100 prompt tokens: the last of n outputs is computed with 100 + n - 1 tokens of context; up to 51 it is known.
    run = lambda: record(plain_workload([0], 100, outputs), VllmParameters(), Limited(), fast_forward=fast_forward,  # noqa: E731
                         details=False, **CACHE)
    if outputs <= 51:
        assert run().requests["output_tokens"].tolist() == [outputs]
    else:
        with pytest.raises(ValueError, match="never measured"):
            run()
