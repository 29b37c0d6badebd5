"""Notes on KV transfers."""
import pytest

import simulator
from support.every_key import read

EXPERIMENT = {
    "engine": {"num_gpu_blocks": 1000, "max_model_len": 4000, "async_scheduling": False},
    "latency": {"backend": "linear"},
    "kv_transfer": {"protocol": "nixl", "kv_bytes_per_token": 1e5, "bandwidth_gb_per_s": 40.0},
    "pools": [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode", "replicas": 4}],
    "workload": {"type": "synthetic", "num_requests": 400, "load": {"mode": "concurrency", "concurrency": 100},
                 "prompt_tokens": {"distribution": "constant", "value": 500},
                 "output_tokens": {"distribution": "constant", "value": 30}}}


def ran(routing, pools=EXPERIMENT["pools"], **keys):
    """Return the most and the fewest requests of a decode replica, and the notes that name a choice that is early."""
    result = simulator.run(read(EXPERIMENT | {"pools": pools, "cluster": {"routing": {"policy": routing}, **keys}}))
    counts = [each["requests"] for each in result.summary["replicas"][1:]]
    notes = [note for note in result.summary["diagnosis"] if "chooses a decode replica" in note]
    return max(counts), min(counts), notes


@pytest.mark.parametrize(("routing", "keys", "is_noted"), [
    ("least_loaded", {}, True), ("least_loaded", {"disaggregation": {"stage_order": "prefill_first"}}, False),
    ("round_robin", {}, False), ("round_robin", {"disaggregation": {"decode": {"policy": "least_loaded"}}}, True),
    ("least_loaded", {"disaggregation": {"decode": {"policy": "round_robin"}}}, False)])
def test_a_decode_replica_chosen_by_load_before_it_has_the_request_is_named(routing, keys, is_noted):
    most, fewest, notes = ran(routing, **keys)

    assert len(notes) == is_noted
    assert is_noted or most - fewest <= 8           # even, where nothing is said


@pytest.mark.parametrize(("decode_pools", "named"), [
    ([{}], []), ([{"replicas": 1}, {"replicas": 1}], ["pools d0, d1"]), ([{"topology": {"data_parallel": 4}}], []),
    ([{"topology": {"data_parallel": 4}, "engine": {"data_parallel": {"load_balancing": "external"}}}], ["pool d0"])])
def test_replicas_are_those_among_which_the_router_chooses(decode_pools, named):
    pools = [{"name": "p", "role": "prefill"}, *({"name": f"d{i}", "role": "decode"} | keys
                                                for i, keys in enumerate(decode_pools))]
    *_, notes = ran("least_loaded", pools=pools)

    assert [note.partition(":")[0] for note in notes] == named
