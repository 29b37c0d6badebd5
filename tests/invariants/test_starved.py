"""Requests without a turn in the iteration in which they leave, or in which the clock stops."""
import numpy as np
import pytest

from simulator.domain import records
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

MS = 1_000_000


def serve(deadline_ns=-1, **options):
    """Return the requests; four run, of which the first has a long prompt that takes all four tokens of an iteration.

    So it is from when ten more gave up, at 5 ms: a chunk is 16 tokens shared among those that run or wait.
    """
    workload = plain_workload(np.zeros(14, int), [100] + [1] * 13, [5] + [20] * 13)
    workload.demands["deadline_ns"][4:] = 5 * MS
    workload.demands["deadline_ns"][2] = deadline_ns
    parameters = VllmParameters(max_num_seqs=4, max_num_batched_tokens=16, max_num_scheduled_tokens=4,
                                long_prefill_token_threshold=1, long_prefill_token_threshold_adaptive=True)
    prices = LinearParameters(base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)
    return record(workload, parameters, Linear(prices), details=False, num_gpu_blocks=100, block_size=16,
                  max_model_len=1000, **options).requests


def test_members_starve_here():
    # 6 tokens by 6 ms, then none until the prompt is computed, 95 tokens at 4 an iteration
    tokens = [serve(horizon_ns=at_ms * MS + MS // 2)["output_tokens"][1] for at_ms in (6, 10, 28, 40)]
    assert tokens[0] == tokens[1] == tokens[2] < tokens[3]


def assert_same(one, other):
    for name in set(one.dtype.names) - {"spare"}:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("half_ms", range(3, 60))
def test_a_request_that_gives_up_without_a_turn_keeps_its_tokens(half_ms):
    deadline_ns = half_ms * MS // 2
    one, other = serve(deadline_ns), serve(deadline_ns, fast_forward=False)
    assert_same(one, other)
    assert one["status"][2] == records.TIMED_OUT or deadline_ns >= one["completed_ns"][2] > 0


@pytest.mark.parametrize("half_ms", range(3, 60))
def test_a_request_without_a_turn_when_the_clock_stops_keeps_its_tokens(half_ms):
    horizon_ns = half_ms * MS // 2
    assert_same(serve(horizon_ns=horizon_ns), serve(horizon_ns=horizon_ns, fast_forward=False))
