"""What routers and scorers make of KV tiers, worked out by hand."""
from pathlib import Path
from types import SimpleNamespace

import pytest

import simulator
from routing.faces import router_of, scorer_of, workload
from simulator import registry
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from support.filled_view import FilledTiers
from support.tier_notes import Leads

REQUESTS = workload([[("doc", 160), ("", 40)]] * 3)      # 12.5 blocks


@pytest.fixture
def view_with():
    """Return a function that makes a view of what tiers hold, [medium][replica]."""
    def make(**found):
        view = FilledTiers(len(next(iter(found.values()))[0]))
        view.in_turn, view.best = found.get("in_turn"), found.get("best")
        return view
    return make


def test_dynamo_credits_blocks_by_where_they_are(view_with):
    # Replica 0: 12.5 - (1 x 2 + 0.75 x 4 + 0.25 x 4 + 0.5 x 6) + (13 - 2) = 14.5; 1: 12.5 - 0.75 x 10 + 13 = 18.
    view = view_with(in_turn=[[2, 0], [4, 10], [4, 0], [6, 0]])
    router = router_of("dynamo", view, REQUESTS, shared_credit=0.5, load="replicas")
    assert router.scores(0, 0).tolist() == [-14.5, -18.0]
    assert view.asked == [(0b1110, None)]


def test_dynamo_counts_no_prefill_of_blocks_in_tiers(view_with):
    # 200 tokens, 16 blocks in the cache and in tiers: 200 is less than 256; replica 1 has 10: 40 tokens are left.
    router = router_of("dynamo", view_with(in_turn=[[2, 0], [4, 10], [4, 0], [6, 0]]), REQUESTS, shared_credit=0.5)
    router.note_sent(0, 0, 0)
    router.note_sent(1, 1, 0)
    assert [tokens for tokens, _ in router.account.loads()] == [0, 40]


def test_dynamo_asks_for_what_it_credits(view_with):
    view = view_with(in_turn=[[2], [0], [0], [0]])
    router_of("dynamo", view, REQUESTS).scores(0, 0)
    router_of("dynamo", view, REQUESTS, host_credit=0.0, disk_credit=0.0, shared_credit=1.0).scores(0, 0)
    assert [media for media, _ in view.asked] == [0b0110, 0b1000]


@pytest.mark.parametrize("keys", [{"overlap": "approximate"}, {"host_credit": 0.0, "disk_credit": 0.0}])
def test_dynamo_may_see_no_tier(view_with, keys):
    router = router_of("dynamo", view_with(in_turn=[[9]]), REQUESTS, **keys)
    assert not router.view.wants_tiers
    assert not router.sees_tiers(registry.load("router", "dynamo").Parameters(**keys))


def test_precise_prefix_cache_weighs_each_block(view_with):
    # 4 + 0.8 x 5 = 8; 0.8 x 10 + 0.3 x 0 = 8; 0.4 x 5 + 0.3 x 4 = 3.2; of 3.2 .. 8
    view = view_with(best=[[4, 0, 0], [5, 10, 0], [0, 0, 4], [0, 0, 5]])
    scorer = scorer_of("precise-prefix-cache", view, REQUESTS, host_weight=0.8, disk_weight=0.3, shared_weight=0.4)
    assert scorer.scores(0, 0).tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert view.asked == [(None, [0, 1, 3, 2])]         # the heaviest first


def test_precise_prefix_cache_looks_at_what_has_a_weight(view_with):
    view = view_with(best=[[4, 0, 1], [0, 0, 0], [0, 8, 0], [0, 0, 0]])
    scorer = scorer_of("precise-prefix-cache", view, REQUESTS, disk_weight=0.25)        # 4, 2, 1
    assert scorer.scores(0, 0).tolist() == pytest.approx([1.0, 1 / 3, 0.0])
    assert view.asked == [(None, [0, 2])]


@pytest.mark.parametrize(("threshold", "expected"), [(40, [5.0, 10.0]), (39, [0.0, 0.0])])
def test_kvaware_counts_whatever_can_be_brought(view_with, threshold, expected):
    # Of 200 tokens replica 1 has 160; if fewer than 40 may be missing, both have got no request so far.
    view = view_with(best=[[5, 2], [0, 4], [0, 3], [0, 1]])
    router = router_of("kvaware", view, REQUESTS, threshold_tokens=threshold)
    assert router.scores(0, 0).tolist() == expected


# ---- replicas that run

# Thirteen blocks of 16 tokens a replica and a large host. The document, ten blocks, comes to replica 0 and is driven
# out of its KV cache by a prompt of thirteen; the first five blocks come to replica 1. Replica 2 serves nobody.
EXPERIMENT = """
engine = {num_gpu_blocks = 14, max_model_len = 512, async_scheduling = false}
topology = {replicas = 3}
latency = {backend = "linear", base_us = 10_000, per_sequence_us = 0, per_prefill_token_us = 0}
workload = {type = "trace", path = "trace.csv"}
kv_tiers = {cpu_gib = 0.01, kv_bytes_per_token = 1000.0, d2h_gb_per_s = 0.1, h2d_gb_per_s = 0.1}
[cluster.routing]
policy = "support.tier_notes:Leads"
"""
TRACE = [(0, 160, 1, "doc:160"), (1, 207, 1, ""), (2, 96, 1, "doc:80/short:16"), (3, 200, 1, "doc:160/tail:40")]
PLACES = (0, 0, 1, 0)


@pytest.fixture
def lead(tmp_path):
    """Return a function that runs the experiment and returns what was seen when each request came."""
    def run(requests=TRACE, places=PLACES, looks=None, **overrides):
        (tmp_path / "trace.csv").write_text("\n".join([
            "arrived_at,num_prefill_tokens,num_decode_tokens,prompt",
            *(",".join(map(str, request)) for request in requests)]) + "\n")
        (tmp_path / "tiers.toml").write_text(EXPERIMENT)
        seen = []

        def look(router, context, row, now_ns):
            found = router.tier_blocks(SimpleNamespace(row=row), now_ns)
            router.view.check(now_ns)
            seen.append(looks(context, row, now_ns) if looks else found)

        Leads.places, Leads.looks = places, look
        results = simulator.run(tmp_path / "tiers.toml", {key.replace("__", "."): value
                                                          for key, value in overrides.items()})
        return seen, results
    yield run
    Leads.looks = None


def test_a_prompt_in_host_memory_and_a_part_on_an_accelerator(lead):
    seen, results = lead()
    assert seen[0] == [(0, 0, 0, 0)] * 3
    assert seen[3] == [(0, 10, 0, 0), (5, 0, 0, 0), (0, 0, 0, 0)]
    assert results.requests["loaded_tokens"].tolist() == [0, 0, 0, 160]


def scores_of(context, row, now_ns):
    if row < 3:
        return None
    routers = {"dynamo": {"load": "replicas"}, "kvaware": {"threshold_tokens": 40}}
    found = {name: kind(kind.Parameters(**keys), context).scores(row, now_ns).tolist()
             for name, keys in routers.items() for kind in [registry.load("router", name)]}
    kind = registry.load("scorer", "precise-prefix-cache")
    weights = {"host_weight": 0.8, "disk_weight": 0.3, "shared_weight": 0.4}
    for name, keys in {"as BLIS": {}, "as llm-d": weights}.items():
        found[name] = kind(kind.Parameters(**keys), context).scores(row, now_ns).tolist()
    return found


def test_the_scores_of_all_who_see_tiers(lead):
    # dynamo: 12.5 - 0.75 x 10 + 13 = 18; 12.5 - 5 + 13 - 5 = 15.5; 12.5 + 13 = 25.5. kvaware: blocks, 160 of 200
    # tokens.
    # precise-prefix-cache: 0, 5, 0 blocks; 0.8 x 10, 5, 0.
    seen, _ = lead(looks=scores_of)
    assert seen[3] == {"dynamo": [-18.0, -15.5, -25.5], "kvaware": [10.0, 5.0, 0.0], "as BLIS": [0.0, 1.0, 0.0],
                       "as llm-d": [1.0, 0.625, 0.0]}


def test_late_signals_show_tiers_as_late(lead):
    # Looks at 0, 1, 2, 3 s. What was seen at 0 s is used before 2.5 s, and what is seen at 3 s is new.
    seen, _ = lead(cluster__routing__cache_signal_delay_s=2.5)
    assert seen[:3] == [[(0, 0, 0, 0)] * 3] * 3
    assert seen[3] == [(0, 10, 0, 0), (5, 0, 0, 0), (0, 0, 0, 0)]


@pytest.mark.parametrize(("scope", "expected"), [
    ("replica", [(0, 3, 7, 0), (0, 0, 0, 0), (0, 0, 0, 0)]),
    ("cluster", [(0, 3, 0, 10), (0, 0, 0, 10), (0, 0, 0, 10)])])
def test_what_is_below_host_memory(lead, scope, expected):
    # Fifteen chunks fit into the host: of the document's ten the last seven have gone when twelve more have come.
    gib = 15 * 16_384 / 2**30
    seen, _ = lead(TRACE[:2] + TRACE[3:], (0, 0, 2), kv_tiers__cpu_gib=gib,
                   kv_tiers__secondary=[{"name": "below", "scope": scope}])
    assert seen[2] == expected


@pytest.mark.parametrize("fast_forward", [True, False])
def test_what_has_been_written_to_a_shared_store_is_there_before_its_writer_knows(lead, fast_forward):
    # Iterations of 1 s. Replica 0 hears at 3.001 s that the document is in its host, and writes it to the store, which
    # takes milliseconds; it notices that at 4.001 s. Whoever looks at 3.5 s finds it, as replica 1 does.
    seen, results = lead(
        [(0, 160, 1, "doc:160"), (1.001, 16, 3, ""), (3.5, 200, 1, "doc:160/tail:40")], (0, 0, 1),
        latency__base_us=1e6, engine__fast_forward=fast_forward,
        kv_tiers__secondary=[{"name": "store", "scope": "cluster"}])
    assert seen[2] == [(10, 0, 0, 0), (0, 0, 0, 10), (0, 0, 0, 10)]
    assert results.requests["loaded_tokens"].tolist() == [0, 0, 160]


def test_replicas_with_other_blocks_and_chunks_and_without_tiers(lead):
    # Chunks of two blocks of 16 tokens; of a block of 32; none. All is counted in blocks of 16.
    tiers = {"cpu_gib": 0.01, "kv_bytes_per_token": 1000.0, "d2h_gb_per_s": 0.1, "h2d_gb_per_s": 0.1}
    requests = [(i, *request[1:]) for i, request in enumerate([*TRACE[:2] * 3, TRACE[3]])]
    requests[2] = (2, 160, 1, "doc:160")
    seen, _ = lead(requests, (0, 0, 1, 1, 2, 2, 2), kv_tiers=None, topology__replicas=1, pools=[
        {"name": "pairs", "kv_tiers": tiers | {"blocks_per_chunk": 2}},
        {"name": "large", "kv_tiers": tiers, "engine": {"block_size": 32, "num_gpu_blocks": 8}},
        {"name": "bare"}])
    assert seen[6] == [(0, 10, 0, 0), (0, 10, 0, 0), (0, 0, 0, 0)]
    assert seen[2] == [(0, 10, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)]


# ---- what is refused


@pytest.mark.parametrize(("keys", "message"), [
    ({"cluster.routing.policy": "dynamo", "cluster.routing.host_credit": 0.5},
     "cluster.routing.host_credit: expected none without [kv_tiers], found 0.5: it weighs the content of tiers, and "
     "there are none"),
    ({"cluster.routing.policy": "weighted", "cluster.routing.scorers": [
        {"name": "precise-prefix-cache", "weight": 1.0, "disk_weight": 0.3}]},
     "cluster.routing.scorers[0].disk_weight: expected none without [kv_tiers], found 0.3: it weighs the content of "
     "tiers, and there are none")])
def test_a_weight_of_what_nobody_keeps_is_refused(tmp_path, keys, message):
    (tmp_path / "plain.toml").write_text("\n".join(
        line for line in EXPERIMENT.splitlines() if "kv_tiers" not in line and "policy" not in line))
    with pytest.raises(InputErrors) as raised:
        load_experiment(tmp_path / "plain.toml", keys)
    assert [fault.split(": ", 1)[1] for fault in raised.value.faults] == [message]


@pytest.mark.parametrize(("policy", "keys"), [
    ("dynamo", {}), ("kvaware", {})])
def test_a_tier_that_cannot_be_seen_is_refused(lead, policy, keys):
    with pytest.raises(InputErrors) as raised:
        lead(cluster__routing__policy=policy, engine__kv_cache_groups=[
            {"kind": "full_attention"}, {"kind": "sliding_attention", "window": 64, "block_size": 32}])
    assert [fault.split(": ", 1)[1] for fault in raised.value.faults] == [
        "kv_tiers: expected none with layers of several kinds and a router that looks at tiers: cluster.routing "
        "chooses by the content of tiers: for layers with separate block tables it is known only if blocks have one "
        "size and some layers have full attention"]


@pytest.mark.parametrize(("policy", "way"), [
    ("dynamo", " (unless host_credit = disk_credit = shared_credit = 0)"), ("kvaware", ""), ("round_robin", None)])
def test_a_tier_that_nobody_sees_is_refused_beside_who_looks(tmp_path, policy, way):
    (tmp_path / "blis.toml").write_text(f"""
engine = {{scheduler = "blis", num_gpu_blocks = 50, upstream_compat = true, max_model_len = 4096}}
latency.backend = "linear"
kv_tiers = {{protocol = "blis_offload", cpu_blocks = 9}}
workload = {{type = "trace", path = "trace.csv"}}
cluster.routing.policy = "{policy}"
""")
    if way is None:
        assert load_experiment(tmp_path / "blis.toml").kv_tiers.protocol == "blis_offload"
        return
    with pytest.raises(InputErrors) as raised:
        load_experiment(tmp_path / "blis.toml")
    assert [fault.split(": ", 1)[1] for fault in raised.value.faults] == [
        'kv_tiers.protocol: expected another with a router that looks at tiers, found "blis_offload": cluster.routing '
        f"chooses by the content of tiers{way}, but cannot see this one: no prompt is found there: all of it comes "
        "back when blocks run out"]


def test_histories_are_loaded_where_the_router_sees_host_memory():
    config = Path(__file__).parents[2] / "configs" / "tier_routing.toml"
    seen, unseen = (simulator.run(config, {"cluster.routing.host_credit": credit}) for credit in (0.75, 0.0))
    assert seen.requests["loaded_tokens"].sum() > 1.8 * unseen.requests["loaded_tokens"].sum() > 0
    assert seen.summary["ttft_ms"]["p50"] == pytest.approx(100.3, abs=0.1)
    assert unseen.summary["ttft_ms"]["p50"] == pytest.approx(128.5, abs=0.1)
