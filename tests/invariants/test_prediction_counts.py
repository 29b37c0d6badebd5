"""How often a latency model is asked, which is what the provenance of a backend counts."""
import numpy as np
import pytest

from simulator.latency.python_model import PythonLatencyModel
from simulator.scheduling.vllm import VllmParameters
from support import engine
from support.workloads import plain_workload


class Counting(PythonLatencyModel):
    """Counts the times it is asked; 1 ms, and 1 us a prompt token."""

    asked = 0

    def batch_us(self, shape):
        self.asked += 1
        return 1000.0 + shape.prefill_tokens


def asked_and_done(**way):
    """Serve 200 requests, one in 20 ms, of 50 tokens each; return the questions and the iterations."""
    workload = plain_workload(np.arange(200) * 20_000_000, 100, 50)
    model = Counting()
    recording = engine.record(
        workload, VllmParameters(), model, details=False, num_gpu_blocks=1000, block_size=16, max_model_len=1024, **way)
    return model.asked, len(recording.iterations)


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("replicas", [1, 3])
def test_every_iteration_is_asked_for_once(fast_forward, replicas):
    asked, done = asked_and_done(fast_forward=fast_forward, replicas=replicas)
    assert asked == done


def test_what_is_planned_and_cut_by_an_arrival_is_asked_for_too():
    # Replicas that are kept up to date plan beyond the next arrival, which nobody knows: of 50 tokens up to 30 in vain.
    asked, done = asked_and_done(coupled=True)
    assert done < asked <= 1.6 * done
    assert asked_and_done(coupled=True, fast_forward=False) == (done, done)
