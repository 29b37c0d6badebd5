"""What the host adds after an iteration: once, for every token, and at the end."""
import numpy as np
import pytest

from simulator.domain.host import HostParameters
from simulator.latency.linear import Linear
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

MS = 1_000_000
US = 1_000


def play(workload, **host):
    """Return a run in which an iteration takes 1 ms and a token 50 us on the host."""
    latency = Linear(Linear.Parameters(
        base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0))
    return record(workload, VllmParameters(), latency, host=HostParameters(output_token_us=50.0, **host),
                  details=False, block_size=4, num_gpu_blocks=100, max_model_len=1000)


@pytest.mark.parametrize(("accumulates", "late_us"), [(False, [50, 50, 50, 50]), (True, [50, 100, 150, 200])])
def test_an_output_token_is_late_once_or_as_often_as_it_has_predecessors(accumulates, late_us):
    recording = play(plain_workload(0, 4, 4), output_token_accumulates=accumulates)

    observed_ns = [(i + 1) * MS + late * US for i, late in enumerate(late_us)]
    assert recording.token_times[0] == observed_ns
    assert recording.requests["first_token_ns"][0] == observed_ns[0]
    assert recording.requests["completed_ns"][0] == observed_ns[-1]
    gaps_ns = np.repeat(recording.itl_gap_ns, recording.itl_count)
    assert gaps_ns.tolist() == 3 * [MS + (50 * US if accumulates else 0)]


def test_completion_takes_its_time_once_and_only_where_a_token_is_kept():
    recording = play(plain_workload([0, 10 * MS], 4, [2, 0]), completion_us=300.0)

    # 2 ms and 50 us for two tokens, then 300 us; no token is kept of the other, which is sampled after 1 ms
    assert recording.requests["completed_ns"].tolist() == [2 * MS + 350 * US, 11 * MS + 50 * US]


@pytest.mark.parametrize("accumulates", [False, True])
def test_a_request_that_comes_in_between_changes_no_other(accumulates):
    # Cut short by arrivals, runs of iterations count tokens like those that are not.
    alone = play(plain_workload(0, 4, 40), output_token_accumulates=accumulates)
    together = play(plain_workload([0, 7.5 * MS, 20.2 * MS], 4, [40, 3, 9]), output_token_accumulates=accumulates)

    assert together.token_times[0] == alone.token_times[0]


@pytest.mark.parametrize(("accumulates", "status"), [(False, "timed out"), (True, "completed")])
def test_a_deadline_is_met_on_the_way_to_the_client_unless_lateness_accumulates(accumulates, status):
    workload = plain_workload(0, 4, 2)                  # the last token leaves the engine at 2 ms
    workload.demands["deadline_ns"] = 2 * MS + 10 * US

    recording = play(workload, output_token_accumulates=accumulates)

    assert (recording.requests["completed_ns"][0] >= 0) == (status == "completed")
