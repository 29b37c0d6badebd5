"""Random scenes with drafts under `scheduler = "sglang"` agree with an executable model, batch by batch."""
import copy
from random import Random

import msgspec
import pytest

from oracle.sglang_drafts import Drafts, with_drafts
from simulator.engine.accepting import new_acceptance
from simulator.scheduling.acceptance_table import AcceptanceTable
from simulator.scheduling.sglang import Sglang
from simulator.scheduling.sglang_drafts import SglangDrafts
from support import reference, sglang
from support.sglang_scenes import random_scene

pytestmark = pytest.mark.skipif(not reference.SGLANG_MODEL.exists(), reason=f"no model at {reference.SGLANG_MODEL}")
CHAINS = [{"num_steps": steps, "method": method} for steps in (1, 3, 6) for method in ("eagle", "mtp")]
TREES = [{"num_steps": 3, "eagle_topk": 2, "num_draft_tokens": 6, "method": "eagle3"},
         {"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 3, "method": "eagle"}]
PLAIN = [{"num_steps": 2, "method": "draft_model", "drafter_share": 0.1},
         {"method": "ngram", "num_draft_tokens": 5, "eagle_topk": 2, "drafter_per_sequence_us": 0.0}]


def random_drafts(rng):
    keys = rng.choice(CHAINS + TREES + PLAIN)
    steps = SglangDrafts(**keys, acceptance=(0,)).num_tokens
    acceptance = (tuple(rng.randint(0, steps) for _ in range(rng.choice([1, 3]))) if rng.random() < 0.5
                  else AcceptanceTable(rates=(0.7,)))
    return SglangDrafts(**keys, acceptance=acceptance)


def per_decode(drafts, page):
    """Return the tokens that a request may write in a decode, by SGLang's rule."""
    steps, width = drafts.num_steps, drafts.eagle_topk
    if page > 1 and width > 1 and drafts.method != "ngram":
        return max((page + steps - 1 + page - 1) // page * page * width, drafts.num_draft_tokens)
    return max(steps * width, drafts.num_draft_tokens)


def scene_of(seed, drafts, **options):
    scene = random_scene(seed, **options)
    scene["step_time"]["per_token"] = 0
    if drafts.method in ("draft_model", "ngram"):
        scene["options"]["enable_mixed_chunk"] = False
    return scene


def log_of(scene, drafts, case):
    """Return what the model does; None: it comes to no end."""
    acceptance = new_acceptance(Sglang.facts(case.plan.pools[0].parameters), case.workload, case.plan.seed)
    rows = {name: row for row, name in enumerate(case.ids)}
    of_model = Drafts(
        per_decode(drafts, scene["options"]["page_size"]), drafts.num_draft_tokens,
        drafts.method in ("eagle", "eagle3", "mtp"), lambda name, step: acceptance.accepted_drafts(rows[name], step))
    simulation = with_drafts(reference._model(reference.SGLANG_MODEL), of_model)(copy.deepcopy(scene))
    try:
        steps = simulation.run()
    except AssertionError:
        return None
    return {"steps": steps} if len(steps) <= scene["max_steps"] else None


def assert_agrees(seed, **options):
    """Check a scene, unless the model leaves it open; return whether it was compared, and the number of retractions."""
    drafts = random_drafts(Random(f"{seed}: drafts"))
    scene = scene_of(seed, drafts, **options)
    case = sglang.load(scene, fast_forward=seed % 2 == 0)
    pool = case.plan.pools[0]
    parameters = msgspec.structs.replace(pool.parameters, speculative=drafts)
    case.plan = msgspec.structs.replace(case.plan, pools=(msgspec.structs.replace(pool, parameters=parameters),))
    log = log_of(scene, drafts, case)
    if log is None or sglang.missing(scene) or sglang.unsettled(log, scene):
        return 0, 0
    steps = sglang.run(case, limit=sum(step["mode"] != "none" for step in log["steps"]))
    difference = sglang.first_difference(log, steps, case.ids)
    assert difference is None, f"{scene['name']}, {drafts}: {difference}"
    return 1, sum(len(step["retracted"]) for step in log["steps"])


@pytest.mark.parametrize("first", [0, pytest.param(16, marks=pytest.mark.ci)])
def test_scenes_agree(first):
    compared, retracted = (sum(counts) for counts in zip(
        *(assert_agrees(seed) for seed in range(first, first + 16)), strict=True))
    assert compared > 8
    assert retracted > 10
