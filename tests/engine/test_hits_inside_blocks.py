"""Hits in the prefix cache that end inside blocks: recorded decisions of vLLM 0.32.0, and experiments."""
import pytest

import simulator
from simulator.errors import InputErrors
from support import engine
from support.log import to_log
from support.recorded_hits import RUNS
from support.scenario import load
from support.vllm_scope import plain

STATES = [{"kind": "full_attention"}, {"kind": "linear_attention"}]
WINDOW = {"kind": "sliding_attention", "window": 32}
BASE = """
[engine]
num_gpu_blocks = 400
max_model_len = 1024
[latency]
backend = "linear"
[workload]
type = "trace"
path = "trace.csv"
"""
OFFLOAD = {"cpu_gib": 4.0, "d2h_gb_per_s": 1.0, "h2d_gb_per_s": 1.0, "kv_bytes_per_token": 1e5}


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the experiment with these groups of layers and other overrides."""
    path = tmp_path / "inside.toml"
    path.write_text(BASE)
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n" + "".join(
        f"{i / 2},101,4,a:101\n" for i in range(12)))
    return lambda groups=None, **overrides: simulator.run(path, overrides={
        key.replace("__", "."): value for key, value in overrides.items()} | (
            {"engine.kv_cache_groups": groups} if groups else {}))


@pytest.fixture
def refusal(run):
    """Return a function that says how they are refused."""
    def of(groups=None, **overrides):
        with pytest.raises(InputErrors) as caught:
            run(groups, **overrides)
        return str(caught.value)
    return of


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("name", RUNS)
def test_decisions_are_those_of_vllm(name, fast_forward):
    description, rows = RUNS[name]
    scenario = load(plain(description))
    log = to_log(engine.run(scenario, fast_forward=fast_forward), scenario.ids)

    ours = [(dict(step["scheduled"]), step["hits"], step["preempted"], step["blocks"], step["free_queue_end"])
            for step in log["steps"] if step["scheduled"]]
    assert ours == rows


def cached(result):
    return result.requests["cached_tokens"].tolist()


def test_a_prompt_that_comes_again_is_found_up_to_its_last_unit(run):
    # Of 101 tokens the last is computed: 100 are 6 blocks of 16 and 4 tokens, 12 units of 8 and 4, 25 of 4.
    for unit, tokens in ((None, 96), (16, 96), (8, 96), (4, 100), (2, 100), (1, 100)):
        given = {} if unit is None else {"engine__prefix_match_unit": unit}
        assert cached(run(STATES, **given)) == [0] + [tokens] * 11


def test_states_in_larger_blocks_are_found_inside_them_without_being_asked_for(run):
    # Blocks of 16 and 64: hashed in pieces of 16, whatever the keys say. The state is kept at 96, inside its block.
    groups = [STATES[0], STATES[1] | {"block_size": 64}]

    assert cached(run(groups)) == [0] + [96] * 11
    assert cached(run(groups, engine__prefix_match_unit=4)) == [0] + [100] * 11


def test_steps_are_the_same_however_they_are_computed(run):
    given = {"engine__prefix_match_unit": 4, "workload__time_scale": 0.01}
    fast, slow = run(STATES, **given), run(STATES, engine__fast_forward=False, **given)
    assert fast.requests.tolist() == slow.requests.tolist()


def test_windows_in_whole_blocks_keep_hits_whole_and_the_diagnosis_says_so(run):
    result = run([*STATES, WINDOW], engine__prefix_match_unit=4)

    assert cached(result) == [0] + [96] * 11
    assert ("prefix_match_unit = 4: hits end each 16 tokens all the same, as in vLLM, since layers with windows or "
            "chunks have blocks of other sizes") in " ".join(result.summary["diagnosis"])
    assert cached(run([*STATES, WINDOW | {"block_size": 4}], engine__prefix_match_unit=4)) == [0] + [100] * 11


def test_without_states_hits_are_whole(run):
    result = run([STATES[0], WINDOW], engine__prefix_match_unit=4)

    assert cached(result) == [0] + [96] * 11
    assert "since no layer keeps states" in " ".join(result.summary["diagnosis"])


def test_the_diagnosis_says_that_copies_take_no_time(run):
    told = " ".join(run(STATES, engine__prefix_match_unit=4).summary["diagnosis"])

    assert "hits in the prefix cache end inside of blocks, each 4 tokens; copying these takes no time" in told
    assert "hits in the prefix cache" not in " ".join(run(STATES).summary["diagnosis"])


def test_a_router_that_looks_at_caches_sees_whole_blocks(run):
    # Each prompt goes to the replica that has its beginning, but the first: the other one never gets any.
    routing = {"topology__replicas": 2, "cluster__routing__policy": "weighted",
               "cluster__routing__scorers": [{"name": "precise-prefix-cache", "weight": 1.0}]}
    for groups in (STATES, [STATES[0], STATES[1] | {"block_size": 32}]):
        for unit in (16, 4):
            result = run(groups, engine__prefix_match_unit=unit, **routing)
            assert len(set(result.requests["replica"].tolist())) == 1
            assert all(tokens > 90 for tokens in cached(result)[1:])


@pytest.mark.parametrize(("groups", "overrides", "message"), [
    (STATES, {"engine__prefix_match_unit": 5},
     "engine.prefix_match_unit: expected a divisor of the block sizes of all groups of layers, 16, found 5"),
    ([STATES[0], STATES[1] | {"block_size": 64}], {"engine__prefix_match_unit": 32}, "16, 64, found 32"),
    (STATES[1:], {"engine__prefix_match_unit": 4},
     "engine.prefix_match_unit: expected none, or 16, the tokens of a block, found 4: all layers are in one group"),
    (None, {"engine__prefix_match_unit": 16},
     "engine.prefix_match_unit: expected none, found 16: all layers share one block table"),
    (STATES, {"engine__prefix_match_unit": 4, "engine__enable_prefix_caching": False},
     "engine.prefix_match_unit: expected none, found 4: enable_prefix_caching is false"),
    (None, {"engine__prefix_match_unit": 4, "engine__vllm_version": "0.10"},
     "engine.prefix_match_unit: expected none, found 4: vLLM 0.10 has no such argument"),
    (STATES, {"engine__prefix_match_unit": 4, "kv_tiers": OFFLOAD},
     "engine.prefix_match_unit: expected none with [kv_tiers], found 4: rules of tiers are not settled with hits "
     "inside blocks"),
    (STATES, {"engine__prefix_match_unit": 4, "pools": [{"name": "p", "role": "prefill"}, {
        "name": "d", "role": "decode"}], "kv_transfer": {
            "protocol": "nixl", "bandwidth_gb_per_s": 10.0, "kv_bytes_per_token": 1e5}},
     '"vllm": it cannot take over what another replica has computed: its rules for KV from elsewhere are not '
     "settled with prefix_match_unit"),
    (STATES, {"engine__prefix_match_unit": 4, "engine__speculative": {"num_tokens": 2}},
     "engine.speculative: expected none where hits end inside of blocks of states"),
    (None, {"engine__scheduler": "sglang", "engine__prefix_match_unit": 4},
     "engine.prefix_match_unit: unknown key"),
])
def test_what_cannot_be_is_refused_with_the_reason(refusal, groups, overrides, message):
    assert message in refusal(groups, **overrides)


def test_beside_a_tier_hits_are_whole_and_the_diagnosis_says_so(run):
    groups = [STATES[0], STATES[1] | {"block_size": 32}]

    told = " ".join(run(groups, kv_tiers=OFFLOAD).summary["diagnosis"])
    assert ("hits in the prefix cache end with whole blocks, each 32 tokens, and in vLLM inside of blocks, each 16: "
            "that is not built") in told
