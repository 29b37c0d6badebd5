"""Drafts beside groups of layers: the engine does what vLLM's own scheduler did, block by block.

The cases were recorded by driving the scheduler of vLLM 0.33.0 and 0.32.0 on a CPU, as docs/howto/new_engine_version.md
describes: states of linear attention with a block for each draft, with checkpoints inside prompts or without, kept
where blocks end or once a sequence, beside windows; and hits that lose their last block, or none, to a drafter of the
model.
`drafts` marks groups that vLLM knows to hold layers of the drafter. In UNEVEN blocks are of several sizes, and hashes
cover the token behind a block: of a text that is computed to its end the small blocks before it are listed.
"""
from pathlib import Path

import pytest

from support.drafted import assert_reproduced, cases_in, name_of

CASES, UNEVEN = (cases_in(Path(__file__).with_name(f"{name}_groups.json.gz")) for name in ("drafted", "uneven"))


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("case", CASES + UNEVEN, ids=name_of)
def test_engine_reproduces_the_recorded_run(case, fast_forward):
    assert_reproduced(case, fast_forward)


def test_the_cases_hold_what_they_are_for():
    # both versions, both loops, states of both sorts, checkpoints, marked groups and none
    options = [case["scenario"]["options"] for case in CASES]
    groups = [group for each in options for group in each["groups"]]
    assert {(each["vllm_version"], each["async_scheduling"]) for each in options} == {
        (version, loop) for version in ("0.32", "0.33") for loop in (True, False)}
    assert {group.get("mode", "align") for group in groups if group["kind"] == "mamba"} == {"align", "none"}
    assert {bool(group.get("checkpoint")) for group in groups} == {bool(group.get("drafts")) for group in groups} == {
        True, False}
    assert {each.get("disable_lookahead", False) for each in options} == {True, False}
    assert max(sum(step["hits"].values()) for case in CASES for step in case["log"]["steps"]) > 0


def test_the_uneven_cases_hold_what_they_are_for():
    assert {case["scenario"]["options"]["vllm_version"] for case in UNEVEN} == {"0.33"}
    for case in UNEVEN:
        options = case["scenario"]["options"]
        assert options["eagle"] and not options.get("disable_lookahead")
        assert len({group.get("block_size", options["block_size"]) for group in options["groups"]}) > 1
        assert sum(sum(step["hits"].values()) for step in case["log"]["steps"]) > 0
