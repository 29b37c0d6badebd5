"""What every router and every scorer of the registry must do."""
import numpy as np
import pytest

from routing.faces import router_of, scorer_of, send, tell, view_of, workload
from simulator import registry

ROUTERS, SCORERS = sorted(registry.KINDS["router"].entries), sorted(registry.KINDS["scorer"].entries)
REQUESTS = workload([[("sys", 64), ("", 40)], 100, [("doc", 80)]] * 20, tenant=np.arange(60) % 3 - 1,
                    session=np.arange(60) % 5 - 1)


@pytest.mark.parametrize("name", ROUTERS)
def test_closed_replicas_get_nothing(name):
    view = view_of(5, is_routable=[0, 1, 0, 1, 0], num_blocks=100)
    router = router_of(name, view, REQUESTS)

    assert {send(router, row, row * 10**9) for row in range(60)} <= {1, 3}


@pytest.mark.parametrize("name", ROUTERS)
def test_a_replica_that_opens_late_is_found_and_one_that_closes_is_left(name):
    view = view_of(3, is_routable=[0, 1, 0])
    router = router_of(name, view, REQUESTS)
    assert send(router, 0) == 1

    tell(view, is_routable=[0, 0, 1])

    assert send(router, 1) == 2


@pytest.mark.parametrize("name", ROUTERS)
def test_nobody_is_chosen_when_all_are_closed(name):
    router = router_of(name, view_of(3, is_routable=0), REQUESTS)

    assert router.choose_replica(0, 0) == -1


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("num_replicas", [1, 2, 70])
def test_the_same_seed_gives_the_same_choices(name, num_replicas):
    def choices():
        router = router_of(name, view_of(num_replicas, num_blocks=100), REQUESTS, seed=7)
        return [send(router, row, row * 10**9) for row in range(60)]

    assert choices() == choices()


@pytest.mark.parametrize("name", ROUTERS)
def test_scores_rank_open_replicas_and_change_nothing(name):
    view = view_of(4, is_routable=[1, 0, 1, 1], waiting=[3, 0, 1, 2], running=[5, 0, 5, 5], in_flight=[8, 0, 6, 7],
                   used_blocks=[50, 0, 10, 30], num_blocks=100)
    asked, silent = router_of(name, view, REQUESTS), router_of(name, view_of(4), REQUESTS)
    silent.view.state_array[:], silent.view.account_array[:] = view.state_array, view.account_array
    silent.view.touch()

    for row in range(10):
        scores = asked.scores(row, 0)

        assert scores[1] == -np.inf
        assert np.isfinite(scores[[0, 2, 3]]).all()
        assert asked.choose_replica(row, 0) == silent.choose_replica(row, 0)


@pytest.mark.parametrize(("name", "parameters", "wants"), [
    ("round_robin", {}, ()),
    ("random", {}, ()),
    ("session", {}, ()),
    ("prefixaware", {}, ()),
    ("least_loaded", {"metric": "requests"}, ("reads_state",)),
    ("least_loaded", {"metric": "waiting"}, ("reads_state", "counts")),
    ("least_loaded", {"metric": "kv"}, ("reads_state", "blocks")),
    ("lor", {}, ("reads_state",)),
    ("lor", {"upstream_compat": True}, ("reads_state", "counts")),
    ("power_of_two", {"metric": "effective"}, ("reads_state", "counts")),
    ("always_busiest", {}, ("reads_state", "counts")),
    ("vllm_dp", {}, ("reads_state", "counts", "blocks")),
    ("vllm_dp", {"vllm_version": "0.10"}, ("reads_state", "counts")),
    ("cache_aware", {}, ("reads_state",)),
    ("prefix_threshold", {}, ("reads_state",)),
    ("kvaware", {}, ("reads_state", "caches")),
    ("dynamo", {}, ("reads_state", "counts", "caches")),
    ("dynamo", {"load": "replicas"}, ("reads_state", "counts", "blocks", "caches")),
    ("dynamo", {"overlap": "approximate"}, ("reads_state", "counts")),
    ("vtc", {}, ("reads_state", "counts")),
    ("lmetric", {}, ("reads_state",)),
    ("waiting_limit", {}, ("reads_state", "counts")),
    ("weighted", {}, ("reads_state", "counts", "blocks", "caches")),
    ("weighted", {"profile": "llm-d"}, ("reads_state", "counts", "blocks")),
])
def test_the_view_is_told_what_will_be_looked_at(name, parameters, wants):
    view = view_of(2)
    router = router_of(name, view, **parameters)

    assert router.reads_state == ("reads_state" in wants)
    told = {want for want in ("counts", "blocks", "levels", "caches") if getattr(view, f"wants_{want}")}
    assert told == {*wants} - {"reads_state"}


@pytest.mark.parametrize("name", SCORERS)
def test_scores_are_of_open_replicas_from_0_to_1(name):
    view = view_of(4, is_routable=[1, 0, 1, 1], waiting=[3, 0, 1, 2], running=[5, 0, 5, 5], in_flight=[8, 0, 6, 7],
                   used_blocks=[50, 0, 10, 30], num_blocks=100)
    scorer = scorer_of(name, view, REQUESTS)

    for row in range(20):
        scores = scorer.scores(row, row * 10**9)

        assert np.isnan(scores[1])
        assert ((scores[[0, 2, 3]] >= 0) & (scores[[0, 2, 3]] <= 1)).all()
        scorer.note_sent(row, (0, 2, 3)[row % 3], row * 10**9)


@pytest.mark.parametrize("name", SCORERS)
def test_a_score_is_the_same_however_often_it_is_asked_for(name):
    view = view_of(3, waiting=[3, 1, 2], running=[5, 4, 3], in_flight=[8, 6, 7], used_blocks=[50, 10, 30],
                   num_blocks=100)
    asked, silent = scorer_of(name, view, REQUESTS), scorer_of(name, view, REQUESTS)

    for row in range(20):
        first = asked.scores(row, row * 10**9)
        np.testing.assert_array_equal(asked.scores(row, row * 10**9), first)
        np.testing.assert_array_equal(silent.scores(row, row * 10**9), first)
        for each in (asked, silent):
            each.note_sent(row, row % 3, row * 10**9)


@pytest.mark.parametrize("name", SCORERS)
def test_a_router_weighs_every_scorer(name):
    view = view_of(3, is_routable=[1, 0, 1], num_blocks=100)
    router = router_of("weighted", view, REQUESTS, scorers=[(name, 1.0, {})])

    assert {send(router, row, row * 10**9) for row in range(20)} <= {0, 2}
