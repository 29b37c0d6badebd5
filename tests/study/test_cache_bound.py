"""The most hits that a prefix cache could have had: against exhaustive search, and above every run's own."""
import json
from functools import cache
from itertools import combinations
from random import Random

import pytest

from simulator import cli
from simulator.assembly.stays import FOREVER_NS, Stay
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.study.cache_bound import bound_of
from simulator.study.cache_bound_command import facts_of
from support.agents import agents

AGENTS = agents(seed=5, num_blocks=160, num_sessions=24) + """
[topology]
replicas = 2
[cluster.routing]
policy = "consistent_hash"
"""


def exhaustive(stays, num_blocks):
    """Return the most hits of beginnings of texts, by trying every set of blocks that can be kept after each end."""
    events = sorted([(stay.begin_ns, 0, i) for i, stay in enumerate(stays)]
                    + [(stay.end_ns, 1, i) for i, stay in enumerate(stays) if stay.end_ns < FOREVER_NS])

    @cache
    def best(event, running, kept):
        if event == len(events):
            return 0
        _, kind, i = events[event]
        blocks = stays[i].blocks
        if kind == 0:
            here, hits = kept.union(*(stays[other].blocks for other in running)), 0
            while hits < stays[i].lookups and blocks[hits] in here:
                hits += 1
            return hits + best(event + 1, running | {i}, kept - frozenset(blocks))
        running -= {i}
        free = (kept | frozenset(blocks)) - frozenset().union(*(stays[other].blocks for other in running))
        return max(best(event + 1, running, frozenset(chosen)) for size in range(min(num_blocks, len(free)) + 1)
                   for chosen in combinations(sorted(free), size))

    return best(0, frozenset(), frozenset())


def random_stays(rng):
    """Return requests with texts that are paths of a random tree, at distinct times."""
    parents = [None] + [rng.randrange(node) for node in range(1, 7)]
    times, stays = rng.sample(range(100), 10), []
    for i in range(5):
        path, node = [], rng.randrange(1, 7)
        while node is not None:
            path.insert(0, node)
            node = parents[node]
        begin_ns, end_ns = sorted(times[2 * i:2 * i + 2])
        stays.append(Stay(begin_ns, rng.choice([end_ns] * 9 + [FOREVER_NS]), path,
                          rng.choice([len(path), len(path) - 1])))
    return sorted(stays)


def test_the_bound_is_reached_by_beginnings_of_texts():
    rng, gains = Random(1), 0
    for _ in range(300):
        stays, num_blocks = random_stays(rng), rng.randint(1, 3)
        bound = bound_of(stays, num_blocks)
        assert bound.hits == exhaustive(stays, num_blocks) <= bound.unlimited
        gains += bound.unlimited > bound.hits
    assert gains > 30                                   # room mattered


def test_a_small_case_by_hand():
    """Blocks 0, 1, 2 of A and 3, 4 of B; room for three. A's are needed first, then B's: 1 block of B is kept."""
    stays = [Stay(0, 1, [0, 1, 2], 3), Stay(2, 3, [3, 4], 2), Stay(4, 5, [0, 1], 2), Stay(6, 7, [3, 4], 2)]
    assert bound_of(stays, 3) == (3, 4)
    assert bound_of(stays, 4) == (4, 4) and bound_of(stays, 1) == (1, 4)


def test_requests_admitted_at_once_find_the_blocks_of_each_other():
    assert bound_of([Stay(0, 5, [0, 1], 2), Stay(0, 9, [0, 1, 2], 2)], 1) == (2, 2)
    assert bound_of([Stay(0, 5, [0, 1], 1), Stay(0, 9, [0, 1, 2], 2)], 1).hits == 2


@pytest.fixture
def agents(tmp_path):
    path = tmp_path / "agents.toml"
    path.write_text(AGENTS)
    return path


def test_no_run_is_above_it(agents):
    for retention in ({"policy": "lru"}, {"policy": "ttl", "ttl_s": 2.0}, {"policy": "predicted"}):
        for more in ({}, {"engine.num_gpu_blocks": 90, "engine.max_model_len": 1400}):
            facts = facts_of(load_experiment(agents, more | {"engine.kv_retention": retention}))
            assert 0 < facts["hit_tokens"] <= facts["most_hit_tokens"] <= facts["unlimited_hit_tokens"]
            assert facts["unlimited_hit_tokens"] < facts["query_tokens"]
    roomy = facts_of(load_experiment(agents, {"engine.num_gpu_blocks": 20_000}))
    assert roomy["most_hit_tokens"] == roomy["unlimited_hit_tokens"]
    assert 0.99 < roomy["hit_tokens"] / roomy["most_hit_tokens"] <= 1       # of blocks being computed none is found


def test_the_command_prints_what_was_possible(agents, capsys):
    assert cli.main(["cache-bound", str(agents)]) == 0
    text = capsys.readouterr().out
    assert cli.main(["cache-bound", str(agents), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    share = facts["most_hit_tokens"] / facts["query_tokens"]
    assert f"{facts['query_tokens']:,} prompt tokens" in text and f"{share:.1%}" in text


@pytest.mark.parametrize(("settings", "message"), [
    ({"engine.enable_prefix_caching": False}, "nothing is looked up"),
    ({"engine.scheduler": "sglang", "engine.max_num_seqs": None}, 'engine.scheduler: expected "vllm"'),
    ({"failures": [{"kind": "stop", "at_s": 1.0}]}, "failures: expected none"),
    ({"autoscaling": {"policy": "queue", "target_waiting": 1.0, "max_replicas": 3}}, "autoscaling: expected none"),
    ({"engine.kv_cache_groups": [{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 64}]},
     "layers of several kinds"),
])
def test_experiments_without_a_bound_are_refused(agents, settings, message):
    if settings.get("engine.scheduler"):
        agents.write_text(AGENTS.replace("max_num_seqs = 16\nmax_num_batched_tokens = 512\n", ""))
        settings = {"engine.scheduler": "sglang"}
    with pytest.raises(InputErrors) as caught:
        facts_of(load_experiment(agents, settings))
    assert message in str(caught.value)
