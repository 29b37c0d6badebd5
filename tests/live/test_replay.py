"""A session is repeated by a run of its record, to the nanosecond."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.live.session import differing_rows, write_session
from support.live_sessions import Session, fleet_of

WAYS = {
    "vllm": ["cluster.routing.policy=round_robin"],
    "preemptions": ["engine.num_gpu_blocks=26", "engine.enable_prefix_caching=false", "topology.replicas=1",
                    "engine.max_model_len=96"],
    "prefix_router": ["cluster.routing.policy=weighted",
                      'cluster.routing.scorers=[{name="prefix-affinity",weight=3.0},{name="queue-depth",weight=2.0}]'],
    "priority": ["engine.policy=priority", "topology.replicas=1", "cluster.routing.policy=random"],
    "host": ["latency.host.output_token_us=700.0", "latency.host.queue_base_us=1500.0",
             "latency.host.completion_us=300.0", "cluster.routing.policy=least_loaded"],
    "autoscaling": ["cluster.routing.policy=least_loaded", 'pools=[{name="all",replicas=1,max_replicas=3}]',
                    'autoscaling={policy="utilisation",target=0.3,interval_s=0.05,'
                    "scale_down_stabilization_window_s=0.1,provisioning_delay={mean_s=0.05}}"],
    "sglang": ["engine.scheduler=sglang", "engine.num_gpu_blocks=200", "engine.block_size=1"],
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_a_run_of_the_record_gives_the_rows_that_were_served(tmp_path, way, seed):
    experiment, fleet = fleet_of(tmp_path, WAYS[way])
    session = Session(fleet, seed).play()
    served = fleet.served()
    assert fleet.num_open == 0
    assert len(served) >= 40

    result = simulator.run(write_session(experiment, served, tmp_path / "session"))

    assert differing_rows(served, result.requests) == []
    assert set(np.unique(served.requests["status"])) == {records.COMPLETED, records.TIMED_OUT}
    assert (served.requests["replica"].max() == 2) == (way == "autoscaling")
    assert served.requests["preemptions"].any() or way != "preemptions"
    assert served.requests["cached_tokens"].any() == experiment.engine.enable_prefix_caching
    _assert_equal_messages(session.messages, result, served)


def _assert_equal_messages(messages, result, served):
    """Compare the tokens that clients got with the table of token times."""
    begins, times_ns = result.token_times
    for row, found in messages.items():
        *tokens, end = found
        seen = [each.time_ns for each in tokens for _ in range(each.tokens)]
        if served.requests["status"][row] == records.COMPLETED:
            assert seen == times_ns[begins[row]:begins[row + 1]].tolist()
            assert end.time_ns == served.requests["completed_ns"][row]
        assert end.tokens == 0
        assert end.status == served.requests["status"][row]
