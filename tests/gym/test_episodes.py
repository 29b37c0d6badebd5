"""An agent that acts as a built-in policy does gives the run of that policy."""
import numpy as np
import pytest

import simulator
from gym.deployments import FLEET, POOLS, steps_of, written
from simulator.errors import InputErrors
from simulator.gym import turns
from simulator.gym.episode import ADMISSION, ROUTER, SCALING, Episode, asked


@pytest.fixture(params=["threads", "stacks"])
def both_turns(request, monkeypatch):
    if request.param == "threads":
        monkeypatch.setattr(turns, "greenlet", None)
    elif turns.greenlet is None:
        pytest.skip("greenlet comes with the extra `gym`")


def played(kind, path, act, **more):
    """Return an episode that has been played."""
    episode = Episode(asked(kind, path, **more))
    episode.steps = steps_of(episode, act)
    return episode


@pytest.mark.usefixtures("both_turns")
def test_replicas_in_turn_are_round_robin(tmp_path):
    path = written(tmp_path, FLEET)

    episode = played(ROUTER, path, lambda number, _: number % 3)

    expected = simulator.run(path, {"cluster.routing.policy": "round_robin"})
    assert np.array_equal(episode.result.requests["replica"], expected.requests["replica"])
    assert np.array_equal(episode.result.requests["completed_ns"], expected.requests["completed_ns"])
    arrival_ns = expected.requests["arrival_ns"].tolist()
    assert episode.steps == [(time_ns, row) for row, time_ns in enumerate(arrival_ns)]


def test_the_fewest_requests_in_flight_are_least_loaded(tmp_path):
    path, seen = written(tmp_path, FLEET), []

    def least(_, decision):
        seen.append(decision.accounts["in_flight"].max())
        return int(decision.accounts["in_flight"].argmin())

    episode = played(ROUTER, path, least, sees_caches=True)

    expected = simulator.run(path, {"cluster.routing.policy": "lor"})
    assert max(seen) > 1
    assert np.array_equal(episode.result.requests["completed_ns"], expected.requests["completed_ns"])


@pytest.mark.usefixtures("both_turns")
def test_every_second_request_is_rejected(tmp_path):
    episode = played(ADMISSION, written(tmp_path, FLEET), lambda number, _: number % 2 == 0)

    counts = episode.result.summary["requests"]
    assert (counts["completed"], counts["rejected"]) == (30, 30)
    assert episode.gains.good <= 30


def test_a_constant_number_of_replicas_is_a_fleet_without_an_autoscaler(tmp_path):
    path = written(tmp_path, POOLS)

    episode = played(SCALING, path, lambda *_: (1, 2))

    expected = simulator.run(written(tmp_path, POOLS[:POOLS.index("[autoscaling]")] + POOLS[POOLS.index("[[pools]]"):]))
    assert np.array_equal(episode.result.requests["completed_ns"], expected.requests["completed_ns"])
    assert [time_ns for time_ns, _ in episode.steps[:3]] == [250_000_000, 500_000_000, 750_000_000]


def test_replicas_start_and_stop_as_the_agent_says(tmp_path):
    seen = []

    def act(number, decision):
        seen.append([(pool.serving, pool.starting) for pool in decision.scaling.variants])
        return (3, 4) if number < 2 else (1, 1)

    played(SCALING, written(tmp_path, POOLS), act)

    assert seen[0] == [(1, 0), (2, 0)]
    assert seen[1] == [(3, 0), (4, 0)]         # a machine is there after 0.1 s
    assert seen[2] == [(3, 0), (4, 0)]
    assert seen[3] == [(1, 0), (1, 0)]


def test_reports_are_as_old_as_the_experiment_says(tmp_path):
    ages_ns = []

    def act(number, decision):
        ages_ns.append(decision.now_ns - int(decision.states["time_ns"].max()))
        return number % 3

    played(ROUTER, written(tmp_path, FLEET), act, overrides={"cluster.routing.snapshot_refresh_interval_s": 0.2})

    assert 100e6 < max(ages_ns) < 200e6
    assert sum(np.diff(ages_ns) < 0) >= 5      # refreshed about every 0.2 s of 1.5 s


@pytest.mark.parametrize(("kind", "text", "acts"), [
    (ROUTER, FLEET, lambda number, _: number % 3), (SCALING, POOLS, lambda number, _: (1 + number % 3, 2))])
def test_decisions_and_totals_are_the_same_without_fast_forward(tmp_path, kind, text, acts):
    path, seen = written(tmp_path, text), []
    for is_fast in (True, False):
        episode, found = Episode(asked(kind, path, {"engine.fast_forward": is_fast})), []

        def act(number, decision, episode=episode, found=found):
            found.append((decision.now_ns, episode.gains, episode.ended.tolist(), decision.states is None
                          or decision.states.tolist()))
            return acts(number, decision)

        steps_of(episode, act)
        seen.append((found, episode.gains))

    assert seen[0] == seen[1]


@pytest.mark.usefixtures("both_turns")
def test_an_episode_may_be_left_and_another_begins(tmp_path):
    experiment, ends = asked(ROUTER, written(tmp_path, FLEET)), []
    for _ in range(2):
        left = Episode(experiment)
        left.begin()
        left.answer(1)
        left.leave()
        left.leave()
        assert left.result is None
        episode = Episode(experiment)
        steps_of(episode, lambda number, _: number % 3)
        ends.append(episode.result.requests["completed_ns"].tolist())

    assert ends[0] == ends[1]


@pytest.mark.usefixtures("both_turns")
def test_a_wrong_action_ends_the_run_with_its_error(tmp_path):
    episode = Episode(asked(ROUTER, written(tmp_path, FLEET)))
    episode.begin()

    with pytest.raises(ValueError, match="expected None or the index of one of 3 replicas"):
        episode.answer(3)


@pytest.mark.parametrize(("kind", "text", "fault"), [
    (ROUTER, POOLS.replace('name = "few"', 'name = "few"\nserves = "x"'), "pools.serves: .* one model, found 2"),
    (ROUTER, FLEET.replace("[latency]", "[latency]\nuncertainty = true"), "latency.uncertainty: "),
    (ADMISSION, FLEET.replace("rate_per_s = 40", "rate_per_s = -1"), "workload.arrival.rate_per_s"),
])
def test_an_experiment_that_cannot_be_played_is_refused(tmp_path, kind, text, fault):
    with pytest.raises(InputErrors, match=fault):
        asked(kind, written(tmp_path, text))


def test_a_load_of_unknown_length_is_refused(tmp_path):
    text = FLEET.replace("num_requests = 60", "duration_s = 2").replace(
        '[workload.arrival]\nprocess = "poisson"\nrate_per_s = 40',
        '[workload.load]\nmode = "concurrency"\nconcurrency = 2')
    episode = Episode(asked(ROUTER, written(tmp_path, text)))

    with pytest.raises(InputErrors, match=r"workload\.load: how many requests it sends"):
        episode.begin()


def test_policies_of_the_gym_need_an_environment(tmp_path):
    with pytest.raises(RuntimeError, match="within its environments alone"):
        simulator.run(asked(ROUTER, written(tmp_path, FLEET)))
