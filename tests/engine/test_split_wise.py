"""`split_wise`, and Vidur's other schedulers with prompts computed apart, by worked examples; numbers in ms.

An iteration takes 5, 0.02 for each token of a prompt, 0.01 for each sequence and 0.00005 for each token of context. A
token's KV has 131,072 B. Recorded runs are in tests/parity/test_simai_pd.py.
"""
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

APART = """
engine = {scheduler = "split_wise", max_model_len = 4096, num_gpu_blocks = 4096}
workload = {type = "trace", path = "t.csv"}
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
output = {token_times = true}
topology = {replicas = 2, pd_node_ratio = 0.5}
cluster = {routing = {policy = "split_wise"}}
kv_transfer = {protocol = "simai", bandwidth_gb_per_s = 1.0}
[latency]
backend = "linear"
base_us = 5000.0
per_sequence_us = 10.0
per_prefill_token_us = 20.0
per_context_token_us = 0.05
"""
HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
COMPAT = {"kv_transfer.upstream_compat": True}


@pytest.fixture
def run(tmp_path):
    """Run requests (arrival in s, prompt, output); return the Result."""
    def run_it(requests, overrides=None):
        (tmp_path / "t.csv").write_text(HEAD + "".join(f"{at},{prompt},{output}\n" for at, prompt, output in requests))
        (tmp_path / "a.toml").write_text(APART)
        return simulator.run(tmp_path / "a.toml", overrides or {})

    return run_it


def prompts_of(result, replica=0):
    """Return the prompt tokens of each batch of a replica."""
    return [tokens for where, tokens in result.iterations[["replica", "prefill_tokens"]].tolist() if where == replica]


def times_of(result, row):
    """Return when the tokens of a request came, in ms."""
    offsets, times_ns = result.token_times
    return [time / 1e6 for time in times_ns[offsets[row]:offsets[row + 1]].tolist()]


def test_whole_prompts_share_a_batch_as_far_as_its_tokens_go(run):
    # 1024 + 1024 <= 2048; the third would be beyond, and the fourth, which would fit, waits behind it.
    result = run([(0, 1024, 2), (0, 1024, 2), (0, 24, 2), (0, 3, 2)], {"engine.max_tokens_in_batch": 2048})

    assert prompts_of(result) == [2048, 27]
    assert prompts_of(result, 1) == [0] * len(prompts_of(result, 1))


def test_a_prompt_longer_than_a_batch_is_refused(run):
    result = run([(0, 1025, 2), (0, 1024, 2)], {"engine.max_tokens_in_batch": 1024})

    assert result.requests["status"].tolist() == [records.REJECTED, records.COMPLETED]


def test_a_prefill_replica_sets_the_longest_text_aside_until_the_prompt_is_computed(run):
    # 4096 tokens are 256 of 600 blocks: two prompts at a time, though all three are short.
    result = run([(0, 100, 2), (0, 100, 2), (0, 100, 2)], {"engine.num_gpu_blocks": 600})

    assert prompts_of(result) == [200, 100]
    assert result.replicas["peak_used_blocks"].tolist() == [512, 512]


def test_a_decode_replica_sets_it_aside_until_the_answer_is_computed(run):
    # All KV comes at 7.02 + 0.1 x 131.072 + 0.131072 = 20.258272, of two at once and of the third one batch later.
    result = run([(0, 100, 3), (0, 100, 9), (0, 100, 3)], {"engine.num_gpu_blocks": 600})
    first, second, third = (times_of(result, row) for row in range(3))

    assert len(second) == 9 and first[-1] < third[1]        # the third has no room until the first is complete
    assert third[1] == second[3]                            # and then joins the next batch


def test_a_request_of_one_token_is_complete_with_its_prompt(run):
    result = run([(0, 1024, 1)])                            # upstream ends on an assertion

    assert times_of(result, 0) == [25.49]
    assert result.requests["status"].tolist() == [records.COMPLETED]


# The prompt of the first is computed at 25.49, of the second at 145.49; the KV of 1025 tokens takes 134.3488.
SLOW = [(0, 1024, 30), (0.12, 1024, 3)]


def test_a_request_is_decoded_when_its_kv_has_come(run):
    result = run(SLOW)

    assert (result.requests["transfer_end_ns"] / 1e6).tolist() == [159.8388, 279.8388]
    assert times_of(result, 0)[1] == 164.90005              # + 5 + 0.01 + 1025 x 0.00005
    assert times_of(result, 1)[1] > 279.8388 + 5


def test_with_upstream_compat_a_replica_that_begins_a_batch_takes_in_who_has_no_kv_yet(run):
    # The replica sleeps until the first KV comes, at 159.8388, and takes in the second request as well.
    result = run(SLOW, COMPAT)

    assert (result.requests["transfer_end_ns"] / 1e6).tolist() == [159.8388, 279.8388]
    assert times_of(result, 0)[1] == times_of(result, 1)[1] == 164.9613     # + 5 + 2 x 0.01 + 2050 x 0.00005
    assert result.requests["completed_ns"][1] < result.requests["transfer_end_ns"][1]
    assert result.summary["kv_transfer"]["count"] == 2


def test_with_upstream_compat_a_client_that_gives_up_leaves_nothing_behind(tmp_path):
    (tmp_path / "t.csv").write_text(HEAD.strip() + ",deadline_s\n0,1024,30,0.1\n0,1024,3,\n")
    (tmp_path / "a.toml").write_text(APART)
    result = simulator.run(tmp_path / "a.toml", COMPAT)

    assert result.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]
    assert result.summary["diagnosis"] == []


@pytest.mark.parametrize(("given", "roles"), [({}, [2, 6]), (COMPAT, [3, 5])])
def test_a_share_of_the_replicas_is_rounded_down_and_upstream_up(run, given, roles):
    result = run([(0, 10, 3)] * 16, {"topology.replicas": 8, "topology.pd_node_ratio": 0.3} | given)
    prefill, decode = (set(result.requests[name].tolist()) for name in ("prefill_replica", "replica"))

    assert [len(prefill), len(decode)] == roles


@pytest.mark.parametrize("scheduler", ["orca", "sarathi", "faster_transformer"])
def test_others_of_vidur_take_over_what_comes_with_its_kv(run, scheduler):
    result = run([(0, 100, 4), (0, 50, 2), (0.03, 40, 3)], {"engine.scheduler": scheduler})
    decode = result.iterations[result.iterations["replica"] == 1]

    assert result.requests["status"].tolist() == [records.COMPLETED] * 3
    assert sum(prompts_of(result)) == 190 and decode["prefill_tokens"].sum() == 0
    assert decode["decode_tokens"].sum() == 3 + 1 + 2       # the first token of each came with its prompt


def test_sarathi_lets_who_comes_with_its_kv_join_the_decodes(run):
    # 30 tokens a batch: four prompts take five batches; at D none is computed again.
    result = run([(0, 35, 40)] * 4, {"engine.scheduler": "sarathi", "engine.chunk_size": 30})

    assert prompts_of(result) == [30, 30, 30, 30, 20]
    assert max(result.iterations["sequences"]) == 4


@pytest.mark.parametrize("scheduler", ["vllm_v0", "lightllm"])
def test_batches_of_one_kind_have_no_rule_for_who_comes_with_its_kv(run, scheduler):
    more = {"engine.block_size": 1, "workload.output_knowledge.predictor": "exact"} if scheduler == "lightllm" else {}
    with pytest.raises(InputErrors) as caught:
        run([(0, 10, 2)], {"engine.scheduler": scheduler} | more)

    assert [str(fault).partition(": ")[2] for fault in caught.value.faults] == [
        f'pools[{i}].engine.scheduler: expected another with kv_transfer.protocol = "simai", found "{scheduler}": it '
        "cannot take over what another replica has computed: its batches are of prompts alone or of decodes "
        "alone, and it has no rule for requests that arrive with KV"
        for i in range(2)]
