"""BLIS's CacheHitRate: a signal that policies see of each replica, fresh or as of a snapshot."""
import importlib

import pytest

import simulator
from support.engine import TEN_MS

# 64 tokens of the first prompt are all that comes again; turns go to replica 0, 1, 0, 1, 0.
TRACE = """arrived_at,num_prefill_tokens,num_decode_tokens,prompt
0,80,1,shared:64/own0:16
1,80,1,other:80
2,80,1,shared:64/own2:16
3,80,1,own3:80
4,80,1,own4:80
"""
POLICIES = '''
from simulator.routing.python_router import PythonRouter
from simulator.routing.scoring.python import PythonScorer

SEEN = []


class Turns(PythonRouter):
    num = -1

    def choose(self, request, now_ns):
        SEEN.append(self.states["cache_hit_rate"].tolist())
        self.num += 1
        return self.num % 2


class Warm(PythonScorer):
    def rate_all(self, request, now_ns):
        SEEN.append(self.states["cache_hit_rate"].tolist())
        return self.states["cache_hit_rate"]
'''


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Return a function that runs the trace, and what was seen at each arrival."""
    name = tmp_path.name.replace("-", "_")                      # a module is imported once
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{name}.py").write_text(POLICIES)
    (tmp_path / "trace.csv").write_text(TRACE)

    def run(policy='policy = "MODULE:Turns"', **overrides):
        module = importlib.import_module(name)
        module.SEEN.clear()
        (tmp_path / "e.toml").write_text(
            f"{TEN_MS}[topology]\nreplicas = 2\n[cluster.routing]\n{policy.replace('MODULE', name)}\n")
        result = simulator.run(tmp_path / "e.toml", {key.replace("__", "."): value for key, value in overrides.items()})
        return [[round(rate, 6) for rate in rates] for rates in module.SEEN], result

    return run


FRESH = [[0, 0], [0, 0], [0, 0], [64 / 160, 0], [64 / 160, 0]]      # tokens found of tokens looked up


@pytest.mark.parametrize("fast_forward", [True, False])
def test_it_is_the_share_of_prompts_found_at_the_time(seen, fast_forward):
    rates, result = seen(engine__fast_forward=fast_forward)

    assert rates == FRESH
    assert result.summary["prefix_cache"]["hit_rate"] == 64 / 400


def test_a_snapshot_is_as_old_as_all_that_it_shows(seen):
    # Taken at 0 s, as all is empty, and again at 3 s.
    assert seen(cluster__routing__snapshot_refresh_interval_s=2.5)[0] == [[0, 0]] * 3 + [[64 / 160, 0]] * 2


def test_scorers_see_it_too(seen, tmp_path):
    first, *rows = TRACE.splitlines()
    (tmp_path / "trace.csv").write_text("\n".join([first, *(f"{row.rsplit(',', 1)[0]},shared:80" for row in rows)]))
    rates, _ = seen('policy = "weighted"\nscorers = [{name = "MODULE:Warm", weight = 1.0}]\n')

    assert max(rates[4]) > 0                    # four came to two replicas: one of them has found something
    assert max(map(max, rates)) <= 1


def test_of_ranks_behind_one_door_it_is_that_of_all(seen):
    rates, _ = seen(topology__replicas=2, topology__data_parallel=2, engine__data_parallel__load_balancing="internal")

    assert all(len(each) == 2 for each in rates)


def test_without_a_cache_it_is_0(seen):
    assert seen(engine__enable_prefix_caching=False)[0] == [[0, 0]] * 5
