"""KV offloaded to host memory, by timelines worked out by hand: iterations of 10 ms, blocks of 16 tokens."""
import pytest

from simulator.domain import records
from simulator.domain.failures import Failure
from support import engine, upkeep
from support.offloading import MS, copies, ms, own, scenario, shared
from support.random_scenarios import with_offload
from support.scenario import load


def test_what_left_the_kv_cache_comes_from_the_host():
    # Ten blocks: r1 takes nine, and of r0's three the last and the middle one are reused. Those two are loaded, behind
    # the first, found in the KV cache: from 60 to 61, when r2 computes the last token of its prompt.
    recording = engine.run(scenario([(0, shared("a", 48), 1), (30, own(144), 1), (60, shared("a", 48), 1)]))

    assert copies(recording, "stores") == [(0, [0, 1, 2]), (1, list(range(3, 12)))]
    assert copies(recording, "loads") == [(2, [1, 2])]
    assert (ms(recording, "scheduled_ns"), ms(recording, "completed_ns")) == ([0, 30, 61], [10, 40, 71])
    assert recording.requests["cached_tokens"].tolist() == [0, 0, 47]
    assert recording.iterations["prefill_tokens"].tolist() == [48, 144, 1]


def test_who_asks_for_what_is_being_written_waits_and_is_overtaken():
    # The store of r0 begins with the next step, at 10, and ends at 60, which the step from 60 to 70 reports. Until then
    # r1 is passed over, not the queue behind it: r2 runs in the iteration from 20. At 70 r1 may load its second block,
    # which does so behind the last iteration of r0, from 80 to 81.
    requests = [(0, shared("a", 32), 8), (15, shared("a", 32), 1), (15, own(16), 1)]
    recording = engine.run(scenario(requests, store_ms=50))

    assert ms(recording, "scheduled_ns") == [0, 81, 20]
    assert copies(recording, "loads") == [(1, [1])]
    assert recording.steps[2]["waiting"] == [1]


def test_lru_lets_the_tail_of_a_prompt_go_first():
    # Three chunks fit: a, b, c of r0 are all there when r1 brings another one, which takes the place of c.
    recording = engine.run(scenario([(0, own(48), 1), (30, own(16), 1)], {"chunks": 3}))

    assert [step["copies"]["evicted"] for step in recording.steps if step["copies"]["evicted"]] == [[[2]]]
    assert recording.steps[-1]["copies"]["order"] == [1, 0, 2]


def test_arc_remembers_what_went_and_raises_its_target():
    # Likewise; c is remembered. r2 brings it again, though not a and b, which it finds in the KV cache and in the host.
    requests = [(0, shared("a", 48), 1), (30, own(16), 1), (60, own(144), 1), (90, shared("a", 48), 1)]
    recording = engine.run(scenario(requests, {"chunks": 3, "policy": "arc"}))
    targets = {step["t_ns"] // MS: step["copies"]["order"]["target"] for step in recording.steps}

    assert next(step["copies"]["evicted"] for step in recording.steps if step["copies"]["evicted"]) == [[2]]
    assert (targets[60], targets[max(targets)]) == (0.0, 1.0)


def test_a_step_waits_for_the_store_of_blocks_that_it_gives_away():
    # r0 ends at 10, and its store runs from 10 to 60. r1 begins at 30 and needs its blocks: it is computed from 60 on.
    recording = engine.run(scenario([(0, own(96), 1), (30, own(96), 1)], store_ms=50))

    assert ms(recording, "completed_ns") == [10, 70]
    assert recording.steps[-1]["t_ns"] > 70 * MS            # the store of r1 ends after all


def test_a_preempted_request_waits_for_its_store():
    # Ten blocks, r0 and r1 have five each, full to the last token. At 10 r1 has no room for its first output. Its store
    # begins at once, behind that of r0, and the iteration of r0 when both are done, 2 x 42 us later.
    recording = engine.run(scenario([(0, own(80), 20), (0, own(80), 5)], store_ms=0.042))

    assert recording.steps[1]["preempted"] == [1]
    assert recording.steps[1]["launch_ns"] == 10 * MS + 84_000


def test_offers_that_find_no_room_are_made_again():
    # Two chunks fit, r0 brings two whose store takes 50 ms; r1's are offered in each iteration until then.
    recording = engine.run(scenario([(0, own(32), 1), (0, own(32), 12)], {"chunks": 2}, store_ms=50))

    assert copies(recording, "stores") == [(0, [0, 1]), (1, [0, 1])]
    assert [step["t_ns"] // MS for step in recording.steps if step["copies"]["stores"]] == [0, 70]


def test_outputs_are_stored_if_asked_for():
    requests = [(0, own(20), 30)]
    stored = [copies(engine.run(scenario(requests, {"offload_prompt_only": only})), "stores")
              for only in (True, False)]

    assert stored == [[(0, [0])], [(0, [0]), (0, [1]), (0, [2])]]       # 49 tokens are computed of a text of 50


def test_a_client_that_gives_up_leaves_what_it_had_computed():
    # r0 gives up at 15 with its first chunk of 16 tokens stored, and the second one computed: at 20 that is stored,
    # too.
    requests = [(0, own(64), 5, {"deadline": 0.015}), (100, own(5), 1)]
    recording = engine.run(scenario(requests, max_num_batched_tokens=16))

    assert recording.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]
    assert copies(recording, "stores") == [(0, [0]), (0, [1])]
    assert recording.steps[-1]["free_blocks"] == 10


def test_what_the_host_held_is_lost_with_the_replica():
    requests = [(0, shared("a", 48), 1), (30, own(144), 1), (100, shared("a", 48), 1)]
    stop = Failure(kind="stop", at_s=0.05, duration_s=0.01, which=0)
    outcomes = [upkeep.run(scenario(requests), replicas=1, failures=failures) for failures in ([], [stop])]

    assert [outcome.legs["external_tokens"].tolist()[2] for outcome in outcomes] == [31, 0]
    assert all(outcome.cluster.replicas[0].scheduler.kv.free_blocks == 10 for outcome in outcomes)


def test_what_is_not_settled_with_offloading_is_refused():
    with pytest.raises(ValueError, match="a KV tier: its rules"):
        engine.run(scenario([(0, own(64), 1)], vllm_version="0.10"))


# ---- rules of vLLM 0.33

@pytest.mark.parametrize(("version", "order"), [("0.32", [0, 1, 2, 3]), ("0.33", [3, 2, 1, 0])])
def test_the_tail_of_a_running_request_goes_first_from_033_on(version, order):
    recording = engine.run(scenario([(0, own(64), 9)], {"chunks": 4}, vllm_version=version))

    assert recording.steps[0]["copies"]["order"] == order


@pytest.mark.parametrize(("version", "evicted"), [("0.32", [0, 1]), ("0.33", [3, 2])])
def test_who_runs_protects_the_beginning_of_its_prompt(version, evicted):
    # r0 has all four places and runs on; r1 takes two of them.
    recording = engine.run(scenario([(0, own(64), 9), (30, own(32), 1)], {"chunks": 4}, vllm_version=version))

    assert [step["copies"]["evicted"] for step in recording.steps if step["copies"]["evicted"]] == [[evicted]]


@pytest.mark.parametrize(("version", "evicted"), [("0.32", [0]), ("0.33", [1])])
def test_a_chunk_is_protected_from_the_first_use_on(version, evicted):
    # Chunk a of r0 is the oldest when r2, which has it in common, begins at 60: r3 brings two chunks while r2 runs.
    requests = [(0, shared("a", 16), 1), (20, own(16), 1), (60, [["group", "a", 16], ["uniq", 16]], 20),
                (90, own(32), 20)]
    recording = engine.run(scenario(requests, {"chunks": 4}, vllm_version=version, num_blocks=40))
    step = next(step for step in recording.steps if step["copies"]["evicted"])

    assert (step["t_ns"] // MS, step["copies"]["evicted"]) == (90, [evicted])


@pytest.mark.parametrize(("version", "stored"), [("0.32", 1), ("0.33", 2)])
def test_after_a_preemption_what_was_lost_is_written_again_from_033_on(version, stored):
    # Ten places, which both prompts fill. r0 is preempted at 20. While it waits, the outputs of r1 fill a chunk, for
    # which one of r0 goes: its last one in 0.33.
    requests = [(0, own(80), 5, {"priority": 5}), (5, own(80), 20, {"priority": 0})]
    recording = engine.run(scenario(requests, {"chunks": 10, "offload_prompt_only": False}, policy="priority",
                                    num_blocks=12, vllm_version=version))

    assert recording.requests["preemptions"].tolist() == [1, 0]
    assert sum(row == 0 for row, _ in copies(recording, "stores")) == stored


# ---- drafts

@pytest.mark.parametrize(("num_drafts", "load_ms"), [(0, 65), (1, 85)])
def test_a_load_leaves_room_for_a_step_with_drafts(num_drafts, load_ms):
    # Eleven blocks: r2 has eight from 65 to 85. The three of r3's prompt, which the host holds, are free; with a draft
    # a fourth must be, for the tokens of its first step.
    requests = [(0, shared("a", 48), 1), (30, own(165), 1), (45, own(111), 4), (60, shared("a", 48), 1)]
    recording = engine.run(scenario(requests, num_blocks=12, num_speculative_tokens=num_drafts))

    assert [step["t_ns"] // MS for step in recording.steps if step["copies"]["loads"]] == [load_ms]


@pytest.mark.parametrize(("eagle", "version", "loaded"), [
    (False, "0.33", [[0, 1, 2]]), (True, "0.33", [[0, 1]]), (True, "0.32", [[0, 1, 2]])])
def test_with_eagle_the_last_chunk_of_a_hit_is_left_from_033_on(eagle, version, loaded):
    requests = [(0, shared("a", 48), 1), (30, own(165), 1), (60, [["group", "a", 48], ["uniq", 30]], 1)]
    recording = engine.run(scenario(requests, num_blocks=12, vllm_version=version, num_speculative_tokens=1,
                                    spec_lookahead=1, eagle=eagle))

    assert [slots for _, slots in copies(recording, "loads")] == loaded


# The last ones: who reads what is being read; a head of the queue that loads what it lost.
@pytest.mark.parametrize("seed", [*range(150), 163, 180, 348, 429, 540, 795])
def test_ways_that_keep_less_books_decide_the_same(seed):
    """Blocks without a name, runs of private chunks, members, iterations at once: against tables and one by one."""
    case = load(with_offload(seed, takes_drafts=True))
    full = engine.run(case, fast_forward=False, max_iterations=20_000)
    for fast_forward in (True, False):
        found = engine.run(case, fast_forward=fast_forward, details=False)

        assert (found.requests == full.requests).all()
        assert (found.iterations == full.iterations).all()
        assert found.token_times == full.token_times
