"""Random scenes with adapters and grammars under `scheduler = "sglang"` agree with an executable model."""
import copy
from random import Random

import msgspec
import pytest

from oracle.sglang_extras import model_with
from simulator.domain.drawn_times import DrawnTime
from simulator.scheduling.sglang_tables import SglangGrammars, SglangLora
from support import reference, sglang
from support.sglang_scenes import random_scene

pytestmark = pytest.mark.skipif(not reference.SGLANG_MODEL.exists(), reason=f"no model at {reference.SGLANG_MODEL}")


def log_of(scene, **extras):
    """Return what the model does, and the most requests that waited for grammars; None: it comes to no end."""
    simulation = model_with(**extras)(copy.deepcopy(scene))
    try:
        steps = simulation.run()
    except AssertionError:
        return None, 0
    return ({"steps": steps} if len(steps) <= scene["max_steps"] else None), simulation.most_held


def with_tables(case, **tables):
    """Return a case with tables below [engine]."""
    pool = case.plan.pools[0]
    parameters = msgspec.structs.replace(pool.parameters, **tables)
    case.plan = msgspec.structs.replace(case.plan, pools=(msgspec.structs.replace(pool, parameters=parameters),))
    return case


def assert_agrees(scene, log, **tables):
    """Compare a scene both ways."""
    for fast_forward in (True, False):
        case = with_tables(sglang.load(scene, fast_forward), **tables)
        steps = sglang.run(case, limit=sum(step["mode"] != "none" for step in log["steps"]))
        difference = sglang.first_difference(log, steps, case.ids)
        assert difference is None, f"{scene['name']}, {fast_forward=}, {tables}: {difference}"


def with_adapters(seed, **options):
    """Return a scene with adapters, and the most in a batch."""
    rng, scene = Random(f"{seed}: adapters"), random_scene(seed, **options)
    names = rng.choice([[None, 1, 2], [None, 1, 1, 1, 2, 3, 4], [1, 2, 3], [None, 1]])
    for request in scene["requests"]:
        request["lora"] = rng.choice(names)
    return scene, rng.choice([1, 1, 2, 3])


def compare_adapters(seed, **options):
    """Check a scene with adapters; return whether it was compared, and whether a request was passed over."""
    scene, limit = with_adapters(seed, **options)
    log, _ = log_of(scene, limit=limit)
    if log is None or sglang.missing(scene) or sglang.unsettled(log, scene):
        return 0, 0
    assert_agrees(scene, log, lora=SglangLora(max_loras_per_batch=limit, step_factor=1.0))
    unlimited, _ = log_of(scene, limit=100)
    return 1, unlimited is None or unlimited["steps"] != log["steps"]


def compare_grammars(seed, **options):
    """Check a scene with grammars; return whether it was compared, and whether requests waited for grammars."""
    rng, scene = Random(f"{seed}: grammars"), random_scene(seed, **options)
    count = rng.choice([1, 3, 30])
    chosen = {request["id"]: rng.randrange(count) for request in scene["requests"] if rng.random() < 0.6}
    order = sorted(scene["requests"], key=lambda request: request["arrival"])
    numbers = {}
    for request in order:
        if request["id"] in chosen:
            numbers.setdefault(chosen[request["id"]], len(numbers))
    codes = {name: numbers[grammar] for name, grammar in chosen.items()}
    times = [rng.choice([0.0, 0.003, 0.02, 0.1, 0.5]) for _ in range(len(numbers))]
    cpus = rng.choice([0, 1])
    log, most_held = log_of(scene, compile_s=times, grammars=codes, workers=cpus and 5)
    if log is None or not numbers or sglang.missing(scene) or sglang.unsettled(log, scene):
        return 0, 0
    table = SglangGrammars(compile_ms=DrawnTime(distribution="listed", values=tuple(1e3 * time for time in times)),
                           mask_us=0.0, cpus=cpus)
    for fast_forward in (True, False):
        case = with_tables(sglang.load(scene, fast_forward), structured_outputs=table)
        case.workload.labels["grammar"] = [str(number) for number in range(len(numbers))]
        case.workload.demands["grammar"] = [codes.get(name, -1) for name in case.ids]
        steps = sglang.run(case, limit=sum(step["mode"] != "none" for step in log["steps"]))
        difference = sglang.first_difference(log, steps, case.ids)
        assert difference is None, f"{scene['name']}, {fast_forward=}, {table}: {difference}"
    return 1, most_held > 0


CI = [pytest.param(first, marks=pytest.mark.ci) for first in (60, 120)]


@pytest.mark.parametrize("first", [0, *CI])
def test_adapters_agree(first):
    compared, passed_over = zip(*(compare_adapters(seed) for seed in range(first, first + 60)), strict=True)
    assert sum(compared) > 30
    assert sum(passed_over) > 15


@pytest.mark.ci
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("overlaps", [False, True])
def test_adapters_agree_short_of_kv(mixed, overlaps):
    compared, _ = zip(*(compare_adapters(
        seed, page_size=1, max_total_tokens=264, context_length=256, chunked_prefill_size=64, enable_mixed_chunk=mixed,
        disable_overlap_schedule=not overlaps, max_running_requests=16, schedule_conservativeness=0.02)
        for seed in range(25)), strict=True)
    assert sum(compared) > 12


@pytest.mark.parametrize("first", [0, *CI])
def test_grammars_agree(first):
    compared, held = zip(*(compare_grammars(seed) for seed in range(first, first + 60)), strict=True)
    assert sum(compared) > 30
    assert sum(held) > 20
