"""Dynamo's router by its own account of prefills and blocks."""
import math
from collections import Counter
from random import Random

import pytest

import simulator
from routing.faces import router_of, tell, workload
from simulator import registry
from simulator.routing.parts.kv_account import KvAccount
from simulator.testing.views import context_of, view_of
from support.cached_view import CachedView

REQUESTS = workload([[("a", 64)], 64, [("a", 64)]])     # 4 blocks each; the third prompt is the first again


def router_with(cached=(0, 2, 0), **parameters):
    """Return the router after requests of 64 tokens were sent to replicas 1 and 0; blocks of prompts are cached."""
    view = CachedView(3)
    view.blocks = list(cached)
    tell(view, num_blocks=10, block_size=16, max_batched_tokens=100)
    router = router_of("dynamo", view, REQUESTS, **parameters)
    router.note_sent(0, 1, 0)
    router.note_sent(1, 0, 0)
    return router


@pytest.mark.parametrize(("decay", "costs", "best"), [
    (0.0, [16.0, 8.0, 8.0], {1, 2}),                # 128/16 + 8; 96/16 - 2 + 4; 64/16 + 4
    (1.0, [16.0, 10 - 2 / (1 + 32 / 64), 8.0], {2}),
])
def test_the_example_that_was_run_with_dynamo(decay, costs, best):
    router = router_with(credit_decay=decay)
    assert router.account.loads() == [(64, 4), (32, 4), (0, 0)]

    assert (-router.scores(2, 0)).tolist() == pytest.approx(costs)
    assert {router.choose_replica(2, 0) for _ in range(30)} == best


def test_a_request_counts_until_it_leaves_and_its_prefill_until_its_first_token():
    router = router_with()
    REQUESTS.requests["first_token_ns"][0] = 5
    router.view.touch(1)
    router.scores(2, 0)
    assert router.account.loads() == [(64, 4), (0, 4), (0, 0)]

    router.note_left(0, 1, 9)
    REQUESTS.requests["first_token_ns"][0] = -1
    router.note_left(1, 0, 9)
    assert router.account.loads() == [(0, 0)] * 3
    router.account.check()


def test_equal_blocks_may_count_for_each_request():
    # 128/16 + 8; 96/16 - 2 + 4 + 4, as the four blocks there count again; 64/16 + 4.
    router = router_with(assume_kv_reuse=False)
    assert (-router.scores(2, 0)).tolist() == [16.0, 12.0, 8.0]

    router.note_sent(2, 1, 0)
    assert router.account.loads()[1] == (64, 8)
    router.note_left(0, 1, 9)
    assert router.account.loads()[1][1] == 4
    router.account.check()


def test_prefills_in_flight_may_not_count():
    router = router_with(track_prefill_tokens=False)

    assert router.account.loads() == [(0, 4), (0, 4), (0, 0)]
    assert (-router.scores(2, 0)).tolist() == [12.0, 6.0, 8.0]      # 64/16 + 8; 64/16 - 2 + 4; 64/16 + 4


@pytest.mark.parametrize(("key", "threshold", "is_open"), [
    ("active_prefill_tokens_threshold", 63.0, [False, True, True]),         # 64, 32 and 0 tokens
    ("active_prefill_tokens_threshold", 64.0, [True, True, True]),
    ("active_prefill_tokens_threshold_frac", 0.31, [False, False, True]),   # of 100 tokens
    ("active_decode_blocks_threshold", 0.39, [False, False, True]),         # 4, 4 and 0 of 10 blocks
    ("active_decode_blocks_threshold", 0.4, [True, True, True]),
])
def test_a_busy_replica_gets_no_requests(key, threshold, is_open):
    scores = router_with(**{key: threshold}).scores(2, 0)

    assert (scores > -float("inf")).tolist() == is_open


def test_no_replica_is_chosen_if_all_are_busy():
    router = router_with(cached=(0, 0, 0), active_prefill_tokens_threshold=0.0)
    router.note_sent(2, 2, 0)

    assert router.choose_replica(2, 0) == -1


class Blocks:
    """Blocks of live requests, as plain sets and sums."""

    def __init__(self):
        self.of_request, self.weights, self.outputs = {}, {}, 0

    def add(self, row, replica, blocks):
        self.of_request[row] = replica, list(blocks)

    def users(self):
        return Counter((replica, block) for replica, blocks in self.of_request.values() for block in blocks)

    def remove(self, row):
        del self.of_request[row]
        users = self.users()
        self.weights = {key: weight for key, weight in self.weights.items() if key in users}

    def add_output(self, row, weight):
        replica, blocks = self.of_request[row]
        self.outputs += 1
        blocks.append(("output", self.outputs))
        users = self.users()
        if weight is not None:
            self.weights |= {(replica, block): weight for block in blocks if users[replica, block] == 1}

    def total(self, replica):
        return int(sum(self.weights.get(key, 1.0) for key in self.users() if key[0] == replica) + 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_count_once_and_weigh_as_their_last_use_says(seed):
    rng, expected = Random(seed), Blocks()
    shapes = [[(rng.choice("ab"), 16 * rng.randint(1, 4)), ("", rng.choice([8, 40]))] for _ in range(40)]
    requests = workload(shapes)
    account = KvAccount(context_of(view_of(2), requests))
    for row, ((name, shared), (_, own)) in enumerate(shapes):
        replica = rng.randrange(2)
        account.note_sent(row, replica, 0)
        expected.add(row, replica, [*((name, i) for i in range(shared // 16)), *((row, i) for i in range(own // 16))])
        for _ in range(3):
            each = rng.choice([*expected.of_request])
            if rng.random() < 0.2:
                account.note_left(each, expected.of_request[each][0])
                expected.remove(each)
            else:
                weight = rng.choice([None, 0.0, 0.25, 0.5, 1.0])
                account.note_output_block(each, expected.of_request[each][0], weight)
                expected.add_output(each, weight)
            if not expected.of_request:
                break
            assert [blocks for _, blocks in account.loads()] == [expected.total(0), expected.total(1)]
        account.check()


SECOND = 10**9


@pytest.mark.parametrize(("policy", "known"), [("ttl", [4, 4, 0]), ("lru", [4, 4, 4])])
def test_prompts_are_remembered_for_a_time_after_they_were_sent_last(policy, known):
    router = router_of("dynamo", view_of(1), REQUESTS, overlap="approximate", approximate_policy=policy,
                       approximate_ttl_s=10.0, load="replicas")

    def blocks(time_s):
        # 64 / 16 less the credit, and 4 blocks less cached ones: a cost of 8 without a match, of 0 with 4 blocks.
        return (8 + router.scores(2, time_s * SECOND)[0]) / 2

    router.note_sent(0, 0, 0)
    found = [blocks(5)]
    router.note_sent(0, 0, 9 * SECOND)
    found += [blocks(18), blocks(19)]
    assert found == known


def test_the_cache_is_predicted_to_have_what_was_sent():
    requests = workload([[("a", 64)], 64, [("a", 64)]])
    view = CachedView(2)
    view.blocks = [0, 1]
    router = router_of("dynamo", view, requests, predicted_ttl_s=2.0, load="replicas")
    assert router.scores(2, 0).tolist() == [-8.0, -6.0]

    router.note_sent(0, 0, 0)

    assert router.scores(2, 1).tolist() == [0.0, -6.0]
    assert router.scores(2, 2 * SECOND).tolist() == [-8.0, -6.0]


def test_a_session_stays_bound_until_it_is_idle_for_its_time_to_live():
    # all prompts are cached at replica 2, and the session was sent to 0, as it was closed
    view, requests = CachedView(3), workload([64] * 3)
    requests.demands["session"] = [0, 0, -1]
    view.blocks = [0, 0, 4]
    tell(view, num_blocks=100, block_size=16, max_batched_tokens=100)
    router = router_of("dynamo", view, requests, session_affinity_ttl_s=10.0)
    assert {router.choose_replica(row, 0) for row in range(3)} == {2}

    router.note_sent(0, 0, 0)
    assert [router.choose_replica(row, 99 * SECOND) for row in (1, 2)] == [0, 2]        # still in flight
    assert router.scores(1, 99 * SECOND).tolist()[1:] == [-math.inf, -math.inf]
    router.note_left(0, 0, 100 * SECOND)
    assert [router.choose_replica(1, at_s * SECOND) for at_s in (109, 110)] == [0, 2]

    view.account_array["is_routable"][0] = False
    view.touch(0)
    assert router.choose_replica(1, 105 * SECOND) == 2                  # where it is bound from then on
    router.note_sent(1, 2, 105 * SECOND)
    view.account_array["is_routable"][0] = True
    view.touch(0)
    assert router.choose_replica(1, 105 * SECOND) == 2


def test_predictions_are_of_events():
    with pytest.raises(ValueError, match="predicted_ttl_s: expected none"):
        router_of("dynamo", view_of(1), REQUESTS, predicted_ttl_s=1.0, overlap="approximate")


def test_the_oldest_prefill_of_a_replica_decays_and_the_next_from_its_end_on():
    # 0.1 s a token: 10 s for the first, 6 s for the second
    requests, second = workload([100, 60]), 10**9
    account = KvAccount(context_of(view_of(1), requests), True, (0.0, 1e5))
    account.note_sent(0, 0, 100, 0)
    account.note_sent(1, 0, 60, 2 * second)

    def tokens(now_s):
        account.note_time(round(now_s * second))
        return account.loads()[0][0]

    assert [tokens(0), tokens(5), tokens(5.05), tokens(7.9)] == [160, 110, 110, 81]      # 49.5 and 21 are left
    account.note_prefilled(0, 0, 8 * second)
    assert [tokens(8), tokens(9), tokens(14), tokens(99)] == [60, 50, 0, 0]
    account.note_left(1, 0, 99 * second)
    assert tokens(100) == 0
    account.check()


def test_the_cost_counts_predicted_tokens_only():
    # 2 ms for 32 tokens at replica 1, 4 ms for 64 at replica 0
    router = router_with(prefill_load_model="line", prefill_base_us=0.0, per_prefill_token_us=62.5)

    assert (-router.scores(2, 0)).tolist() == [16.0, 8.0, 8.0]
    # 64 - 16 and 32 - 16 tokens after 1 ms: (48 + 64)/16 + 8, (16 + 64)/16 - 2 + 4
    assert (-router.scores(2, 10**6)).tolist() == [15.0, 7.0, 8.0]


@pytest.mark.parametrize("keys", [{"load": "replicas"}, {"track_prefill_tokens": False}])
def test_a_prefill_load_model_needs_an_account(keys):
    with pytest.raises(ValueError, match='prefill_load_model: expected "none"'):
        router_with(prefill_load_model="line", **keys)


def output_router(expected=-1, **parameters):
    """Return the router, its requests and its only replica, which has three requests; 0 and 2 share 4 blocks."""
    requests = workload([[("a", 64)], 64, [("a", 64)]], expected_tokens=expected)
    view = CachedView(1)
    view.blocks = [0]
    tell(view, num_blocks=100, block_size=16, max_batched_tokens=100)
    router = router_of("dynamo", view, requests, output_blocks=True, **parameters)
    for row in (0, 1):
        router.note_sent(row, 0, 0)

    def blocks(*outputs):
        requests.requests["output_tokens"][:len(outputs)] = outputs
        router.scores(2, 0)
        router.account.check()
        return router.account.loads()[0][1]

    return router, blocks


def test_each_whole_block_of_outputs_counts_as_one():
    router, blocks = output_router()

    assert [blocks(15, 0), blocks(16, 15), blocks(33, 47)] == [8, 9, 8 + 2 + 2]
    router.note_left(0, 0, 0)
    assert router.account.loads()[0][1] == 4 + 2


def test_blocks_of_a_request_that_nears_its_predicted_end_weigh_less():
    # 1 - 16/64: 5 blocks weigh 0.75 each, together 3.75 beside the 4 of the other; 1 - 32/64: 6 weigh 3; then nothing
    _, blocks = output_router(expected=[64, -1, -1])

    assert [blocks(16, 0), blocks(32, 0), blocks(64, 0), blocks(200, 0)] == [8, 7, 4, 4]


def test_blocks_that_another_request_has_keep_their_weight():
    # Request 2 comes after 16 of 64 tokens: the 4 shared blocks keep 0.75 each. Later only its outputs change:
    # 4 + 4 x 0.75 + 2 x 0.5 = 8. When request 0 has left, the shared blocks and those of request 1 are there.
    router, blocks = output_router(expected=[64, -1, -1])
    assert blocks(16, 0) == 8
    router.note_sent(2, 0, 0)

    assert blocks(32, 0) == 8
    router.note_left(0, 0, 0)
    assert router.account.loads()[0][1] == 7


def test_reports_of_replicas_have_output_blocks_already():
    with pytest.raises(ValueError, match="output_blocks: expected false with load"):
        output_router(load="replicas")


def test_prefill_replicas_have_no_outputs():
    requests = workload([64])
    context = context_of(view_of(1), requests, prefill_legs=requests.requests)
    kind = registry.load("router", "dynamo")
    router = kind(kind.Parameters(output_blocks=True), context)
    router.note_sent(0, 0, 0)
    requests.requests["output_tokens"] = 64

    router.scores(0, 0)
    assert router.account.loads() == [(64, 4)]


OUTPUTS = """
cluster = {routing = {policy = "dynamo", output_blocks = true}}
topology.replicas = 2
output.decisions = 2
[engine]
max_num_seqs = 8
max_num_batched_tokens = 128
max_model_len = 500
num_gpu_blocks = 400
block_size = 16
%s
[latency]
backend = "linear"
base_us = 3000
per_sequence_us = 100
per_prefill_token_us = 20
per_context_token_us = 0
[workload]
type = "synthetic"
num_requests = 60
arrival = {process = "poisson", rate_per_s = 40.0}
prompt_tokens = {distribution = "uniform", min = 16, max = 80}
output_tokens = {distribution = "uniform", min = 1, max = 200}
"""
DRAFTS = "speculative = {method = \"draft_model\", num_tokens = 3, drafter_share = 0.1, acceptance = {rates = [0.6]}}"


@pytest.mark.parametrize("engine", [
    "", "async_scheduling = true", "async_scheduling = false", "topology.pipeline_parallel = 2", DRAFTS])
def test_outputs_are_those_of_the_instant_also_in_the_middle_of_a_run(tmp_path, engine):
    top = [line for line in engine.splitlines() if line.startswith("topology")]
    text = "\n".join(top) + OUTPUTS % ("" if top else engine)
    (tmp_path / "outputs.toml").write_text(text)
    fast, plain, without = (simulator.run(tmp_path / "outputs.toml", keys) for keys in (
        {}, {"engine.fast_forward": False}, {"cluster.routing.output_blocks": False}))

    assert fast.requests.tobytes() == plain.requests.tobytes()
    assert fast.candidates["score"].tolist() == plain.candidates["score"].tolist()
    assert fast.candidates["score"].tolist() != without.candidates["score"].tolist()
