"""Each pool by its own keys: nothing is read off the first pool, and their order decides nothing."""
import sys

import pytest

import simulator
from simulator.errors import InputErrors
from support.engine import TEN_MS

MS = 1_000_000
LAB = '''
from simulator.latency.python_model import PythonLatencyModel
from simulator.routing.python_router import PythonRouter
import msgspec

SEEN = []


class Turns(PythonRouter):
    """Request n to replica n modulo their number; writes down what it sees of their caches."""

    uses_caches = True

    def choose(self, request, now_ns):
        SEEN.append(self.cached_blocks(request, now_ns))
        return request.row % self.num_replicas


class Named(PythonLatencyModel):
    """10 ms an iteration, from a source with a name."""

    class Parameters(msgspec.Struct, frozen=True, kw_only=True):
        source: str = "a"

    def batch_us(self, shape):
        return 10_000.0

    def provenance(self):
        return {"source": self.parameters.source}

    def warnings(self):
        return [f"{self.parameters.source} is a guess"]
'''
TURNS = '[cluster.routing]\npolicy = "pools_lab:Turns"\n'


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Return a function: the result of serving rows of a trace, and the caches that the router Turns saw."""
    def run(more, *rows, columns="", **overrides):
        header = "arrived_at,num_prefill_tokens,num_decode_tokens" + columns
        (tmp_path / "trace.csv").write_text("\n".join([header, *rows]) + "\n")
        (tmp_path / "a.toml").write_text(TEN_MS + more)
        (tmp_path / "pools_lab.py").write_text(LAB)
        monkeypatch.setattr(sys, "path", list(sys.path))
        sys.modules.pop("pools_lab", None)
        result = simulator.run(tmp_path / "a.toml", overrides)
        return result, list(sys.modules["pools_lab"].SEEN) if "pools_lab" in sys.modules else []
    return run


def statuses(result):
    """Return what became of each request, in words."""
    return [simulator.domain.records.STATUS_NAMES[code] for code in result.requests["status"]]


# ---- deadlines

NEAR = '[[pools]]\nname = "near"\n'
FAR = '[[pools]]\nname = "far"\nlatency.host.output_token_us = 50_000.0\n'
either_order = pytest.mark.parametrize("is_first", [True, False])


def in_order(is_first, one, other):
    return one + other if is_first else other + one


@either_order
def test_a_deadline_is_held_against_what_the_clients_of_that_pool_see(serve, is_first):
    # Both give up at 95 ms. Near: 9 tokens, seen at 10, 20, .. 90 ms: completed. Far: 5 tokens leave the engine at 10
    # to 50 ms and are seen 50 ms later: four of them, at 60 to 90 ms, are in time.
    pools = in_order(is_first, NEAR + 'serves = "near"\n', FAR + 'serves = "far"\n')
    result, _ = serve(pools, "0,10,9,near,0.095", "0,10,5,far,0.095", columns=",model,deadline_s")
    assert statuses(result) == ["completed", "timed_out"]
    assert result.requests["output_tokens"].tolist() == [9, 4]
    assert result.requests["completed_ns"].tolist() == [90 * MS, -1]


@either_order
def test_pools_of_one_model_hold_deadlines_against_their_own_clients(serve, is_first):
    # By turns: the first request goes to the first pool, the second to the other one.
    result, _ = serve(in_order(is_first, NEAR, FAR), "0,10,9,0.095", "0,10,9,0.095", columns=",deadline_s")
    by_pool = result.requests["output_tokens"].tolist()
    assert (by_pool if is_first else by_pool[::-1]) == [9, 4]


@either_order
def test_who_comes_to_a_far_pool_after_its_last_useful_instant_leaves_at_once(serve, is_first):
    # Routing takes 60 ms. Near: tokens at 70, 80, 90 ms, in time. Far: no token would be seen before 120 ms.
    more = in_order(is_first, NEAR, FAR) + "[cluster.routing]\nlatency_s = 0.06\n"
    result, _ = serve(more, "0,10,3,0.095", "0,10,3,0.095", columns=",deadline_s")
    near, far = (0, 1) if is_first else (1, 0)
    assert (statuses(result)[near], statuses(result)[far]) == ("completed", "timed_out")
    assert result.requests["output_tokens"][far] == 0
    assert result.summary["replicas"][far]["iterations"] == 0


def test_a_request_that_comes_to_another_pool_has_the_time_of_that_pool(serve):
    # Near: a token at 10 ms; the replica stops at 20 ms, with an iteration that is lost. Far goes on from there: tokens
    # leave it at 30, 40, 50, .. ms and are seen at 80, 90, 100 ms; the client gives up at 95 ms.
    more = NEAR + FAR + '[[failures]]\nkind = "stop"\nwhich = 0\nat_s = 0.02\n'
    result, _ = serve(more, "0,10,20,0.095", columns=",deadline_s")
    assert statuses(result) == ["timed_out"]
    assert result.requests["replica"].tolist() == [1]
    assert result.requests["output_tokens"].tolist() == [3]


# ---- nodes and units

def test_units_of_a_pool_are_its_own(serve):
    # Pool a: replica 0 on node 0, unit 0. Pool b: replicas 1 and 2 on nodes 1 and 2, two a unit: unit 1.
    pools = '[[pools]]\nname = "a"\n[[pools]]\nname = "b"\nreplicas = 2\nnodes_per_unit = 2\n'
    for unit, failed in ((0, [0]), (1, [1, 2])):
        failure = f'[[failures]]\nkind = "stop"\ntarget = "unit"\nwhich = {unit}\nat_s = 0.005\n'
        result, _ = serve(pools + failure, "0,10,5")
        changed = result.lifecycle[result.lifecycle["time_ns"] == 5 * MS]
        assert sorted(set(changed["replica"].tolist())) == failed


# ---- what the latency models say of themselves

def test_one_latency_model_stands_in_the_summary_as_it_is(serve):
    more = '[[pools]]\nname = "one"\n[[pools]]\nname = "two"\n'
    result, _ = serve(more, "0,10,1", latency={"backend": "pools_lab:Named"})
    assert result.summary["latency"] == {"source": "a"}
    assert result.summary["diagnosis"] == ["a is a guess"]


@either_order
def test_each_pool_tells_where_its_durations_come_from(serve, is_first):
    pools = ['[[pools]]\nname = "one"\n', '[[pools]]\nname = "two"\nlatency.source = "b"\n']
    result, _ = serve("".join(pools if is_first else pools[::-1]), "0,10,1", latency={"backend": "pools_lab:Named"})
    assert result.summary["latency"] == {"one": {"source": "a"}, "two": {"source": "b"}}
    assert sorted(result.summary["diagnosis"]) == ["pool one: a is a guess", "pool two: b is a guess"]


# ---- caches of other block sizes

SMALL = '[[pools]]\nname = "small"\n'
WIDE = '[[pools]]\nname = "wide"\nengine.block_size = %d\n'


@pytest.mark.parametrize(("block_size", "held"), [(32, 4), (64, 4), (8, 8), (24, 6)])
@either_order
def test_caches_with_other_blocks_are_seen_too(serve, is_first, block_size, held):
    # All prompts begin with the same 64 tokens: four blocks of 16, two of 32, one of 64, eight of 8, and two of 24, 48
    # tokens. They are told in blocks of the greatest common divisor: of 16 tokens, or 8.
    rows = [f"{0.05 * i:.2f},80,1,sys:64/:16" for i in range(3)]
    small = 64 // (16 if block_size > 24 else 8)
    _, seen = serve(in_order(is_first, SMALL, WIDE % block_size) + TURNS, *rows, columns=",prompt")
    first, second = (small, held) if is_first else (held, small)
    assert seen == [[0, 0], [first, 0], [first, second]]


@pytest.mark.parametrize("policy", ["kvaware", "dynamo"])
@either_order
def test_a_prompt_goes_to_the_pool_that_has_most_of_it_whatever_its_blocks(serve, is_first, policy):
    # The first request fills one cache with its 80 tokens; the others, much later, follow it.
    more = in_order(is_first, SMALL, WIDE % 32) + f'[cluster.routing]\npolicy = "{policy}"\n'
    if policy == "dynamo":
        more += 'overlap = "events"\n'
    rows = [f"{0.05 * i:.2f},96,1,sys:96" for i in range(4)]
    result, _ = serve(more, *rows, columns=",prompt")
    assert len(set(result.requests["replica"].tolist())) == 1
    assert (result.requests["cached_tokens"][1:] > 0).all()


# ---- adapters

def test_requests_of_different_adapters_share_no_blocks(serve):
    # One prompt, first under each of: no adapter, x, y; then again. Only the second of each finds it.
    rows = [f"{0.05 * i:.2f},80,1,sys:64/:16,{adapter}" for i, adapter in enumerate(["", "x", "y", "", "x", "y"])]
    result, seen = serve(TURNS, *rows, columns=",prompt,adapter")
    assert result.requests["cached_tokens"].tolist() == [0, 0, 0, 64, 64, 64]
    assert seen == [[0], [0], [0], [4], [4], [4]]


# ---- requests that nobody serves

def test_requests_of_unknown_models_are_counted_and_named(serve):
    pools = '[[pools]]\nname = "a"\nserves = "x"\n'
    result, _ = serve(pools, "0,10,1,x", "0,10,1,other", "0,10,1,another", "0,10,1,other", columns=",model")
    assert statuses(result) == ["completed", "rejected", "rejected", "rejected"]
    assert result.summary["diagnosis"] == [
        "of 4 requests 1 was served: 3 rejected",
        'no pool serves model "another": rejected 1 request, 2',
        'no pool serves model "other": rejected 2 requests, 1 first']


@either_order
def test_requests_that_name_no_model_are_for_nobody_where_several_are_served(serve, is_first):
    pools = in_order(is_first, '[[pools]]\nname = "a"\nserves = "x"\n', '[[pools]]\nname = "b"\nserves = "y"\n')
    result, _ = serve(pools, "0,10,1,y", "0,10,1,", columns=",model")
    assert statuses(result) == ["completed", "rejected"]
    assert result.summary["diagnosis"] == [
        "several models are served, and requests that name none match no pool: rejected 1 request, 1; fill in the "
        "column model, or leave serves out of one pool"]


def test_requests_that_name_no_model_are_for_the_only_one(serve):
    result, _ = serve('[[pools]]\nname = "a"\nserves = "x"\n', "0,10,1,x", "0,10,1,", columns=",model")
    assert statuses(result) == ["completed", "completed"]


def test_requests_of_an_slo_class_that_nobody_described_are_counted_where_others_are(serve):
    rows = [f"0,10,1,{name}" for name in ("gold", "glod", "standard", "", "glod")]
    classes = '[[slo.classes]]\nname = "gold"\nttft_ms = 100.0\n'
    result, _ = serve(classes, *rows, columns=",slo_class")
    assert result.summary["diagnosis"] == [
        '[[slo.classes]] has no "glod": 2 requests, 1 first, had the priority of others and the bounds of [slo] alone']
    assert serve("", *rows, columns=",slo_class")[0].summary["diagnosis"] == []


# ---- requests do not move between layouts

def test_kv_is_not_copied_between_blocks_of_different_sizes(serve):
    more = SMALL + WIDE % 32 + "[cluster.rescheduling]\nbandwidth_gb_per_s = 10.0\nkv_bytes_per_token = 1000.0\n"
    with pytest.raises(InputErrors) as caught:
        serve(more, "0,10,1")
    assert [fault.split(": ", 1)[1] for fault in map(str, caught.value.faults)] == [
        'pools[1].engine.block_size: expected 16, as in pool "small", found 32: cluster.rescheduling.mode = "live" '
        "copies KV blocks unchanged between pools that serve the same requests"]
    assert statuses(serve(more + 'mode = "recompute"\n', "0,10,1")[0]) == ["completed"]
