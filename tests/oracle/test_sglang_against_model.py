"""Random scenes under `scheduler = "sglang"` agree with the executable model of SGLang 0.5.23, batch by batch."""
import pytest

from support import reference, sglang
from support.sglang_scenes import random_scene

pytestmark = pytest.mark.skipif(not reference.SGLANG_MODEL.exists(), reason=f"no model at {reference.SGLANG_MODEL}")
# Of 4,000 scenes these once differed: somebody who is refused, for the queue is full, stood in front of others
FULL_QUEUES = [{"max_queued_requests": 2, "enable_priority_scheduling": True, "disable_priority_preemption": preempts,
                "schedule_low_priority_values_first": False, "priority_scheduling_preemption_threshold": 1,
                "retraction_policy": None} for preempts in (False, True)]


def assert_agrees(description):
    """Check a scene both ways, unless the model leaves it open; say whether it was compared."""
    log = reference.sglang_log(description)
    if log is None or sglang.missing(description) or sglang.unsettled(log, description):
        return False
    for fast_forward in (True, False):
        case = sglang.load(description, fast_forward)
        steps = sglang.run(case, limit=sum(step["mode"] != "none" for step in log["steps"]))
        difference = sglang.first_difference(log, steps, case.ids)
        assert difference is None, f"{description['name']}, {fast_forward=}: {difference}"
    return True


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.ci) for first in (50, 100, 150))])
def test_scenes_agree(first):
    assert sum(assert_agrees(random_scene(seed)) for seed in range(first, first + 50)) > 25


@pytest.mark.parametrize("options", FULL_QUEUES)
def test_who_is_refused_stands_in_nobody_s_way(options):
    compared = [assert_agrees(random_scene(seed, **options)) for seed in range(25)]
    assert sum(compared) > 12


@pytest.mark.ci
@pytest.mark.parametrize("options", [
    {}, {"page_size": 16}, {"page_size": 1, "disable_radix_cache": True}, {"page_size": 1, "chunked_prefill_size": 32},
    {"disable_overlap_schedule": False, "page_size": 1, "max_running_requests": 16, "schedule_conservativeness": 0.02}])
def test_one_token_stands_for_a_prompt_that_is_too_long(options):
    assert sum(assert_agrees(random_scene(seed, has_long=True, **options)) for seed in range(25)) > 12


@pytest.mark.ci
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("page", [1, 16])
def test_scenes_short_of_kv_agree(mixed, page):
    compared = [assert_agrees(random_scene(
        seed, page_size=page, max_total_tokens=264, context_length=256, chunked_prefill_size=64,
        enable_mixed_chunk=mixed, max_running_requests=16, schedule_conservativeness=0.02)) for seed in range(25)]
    assert sum(compared) > 12
