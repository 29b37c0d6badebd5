"""KV offload beside EAGLE and MTP where layers are in groups: the engine does what vLLM did, block by block.

The cases were recorded by driving the scheduler and the offloading connector of vLLM 0.33.0 and 0.32.0 on a CPU, as
docs/howto/new_engine_version.md describes; each has loads. A group that `drafts` loses the last chunk of a hit, and its
windows keep the chunk behind an end.
"""
from pathlib import Path

import pytest

from support.drafted import assert_reproduced, cases_in, name_of

CASES = cases_in(Path(__file__).with_name("drafted_offload.json.gz"))


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_engine_reproduces_the_recorded_run(case, fast_forward):
    assert_reproduced(case, fast_forward)


def test_the_cases_hold_what_they_are_for():
    options = [case["scenario"]["options"] for case in CASES]
    groups = [group for each in options for group in each["groups"]]
    assert {(each["vllm_version"], each["async_scheduling"]) for each in options} == {
        (version, loop) for version in ("0.32", "0.33") for loop in (True, False)}
    assert {"full", "sliding"} <= {group["kind"] for group in groups if group.get("drafts")}
    assert {bool(group.get("checkpoint")) for group in groups if group["kind"] == "mamba"} == {True, False}
    assert {each["kv_offload"]["blocks_per_chunk"] > 1 for each in options} == {True, False}
    assert {each.get("prefix_cache_retention_interval") for each in options} >= {None, 0}
    assert all(any(step["loads"] for step in case["log"]["steps"]) for case in CASES)
