"""The environments of gymnasium."""
import numpy as np
import pytest

from gym.deployments import FLEET, POOLS, TENANTS, written

gymnasium = pytest.importorskip("gymnasium", reason="environments need the extra `gym`")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from simulator.gym import AdmissionEnv, RouterEnv, ScalingEnv, built_in, compare, vectorised  # noqa: E402
from simulator.gym.observations import REPLICA_COLUMNS, REQUEST_COLUMNS  # noqa: E402


def in_turn(_, info):
    """Act as round robin does."""
    return info["row"] % 3


@pytest.mark.parametrize(("kind", "text"), [(RouterEnv, FLEET), (AdmissionEnv, FLEET), (ScalingEnv, POOLS),
                                            (ScalingEnv, POOLS[:POOLS.index("[[pools]]\nname = \"many\"")] + POOLS[
                                                POOLS.index("[engine]") - 1:])])
def test_gymnasium_finds_no_fault(tmp_path, kind, text):
    check_env(kind(written(tmp_path, text), cost=1.0, fairness=1.0), skip_render_check=True)


def test_an_environment_is_made_by_its_name(tmp_path):
    environment = gymnasium.make("simulator/Router-v0", experiment=written(tmp_path, FLEET))

    assert environment.reset(seed=2)[1]["seed"] == 2
    environment.close()


def rewards_of(environment, **how):
    """Return the rewards and seeds of an episode of round robin."""
    observation, info = environment.reset(**how)
    rewards, seed, has_ended = [], info["seed"], False
    while not has_ended:
        observation, reward, has_ended, _, info = environment.step(in_turn(observation, info))
        rewards.append(reward)
    return seed, rewards


def test_episodes_follow_from_their_seed(tmp_path):
    first, second = (RouterEnv(written(tmp_path, FLEET)) for _ in range(2))

    drawn = [rewards_of(first) for _ in range(3)]

    assert drawn == [rewards_of(second) for _ in range(3)]
    assert drawn[0][0] == 7                     # the seed of the file
    assert len({seed for seed, _ in drawn}) == 3
    assert rewards_of(first, seed=drawn[2][0]) == drawn[2]


def test_an_observation_is_what_the_gateway_sees(tmp_path):
    environment = RouterEnv(written(tmp_path, TENANTS))
    observation, info = environment.reset()
    sent = 0
    for _ in range(5):
        sent += info["prompt_tokens"]
        observation, _, _, _, info = environment.step(1)

    columns = dict(zip(REPLICA_COLUMNS, observation["replicas"].T, strict=True))
    assert columns["in_flight_tokens"][1] <= sent
    assert columns["in_flight"].tolist()[::2] == [0, 0] and columns["in_flight"][1] > 0
    assert columns["num_blocks"].tolist() == [299] * 3           # the null block is not counted
    request = dict(zip(REQUEST_COLUMNS, observation["request"].tolist(), strict=True))
    assert request["prompt_tokens"] == info["prompt_tokens"] == 100 + 7 * 5
    assert request["since_last_s"] == pytest.approx(0.02)
    assert (info["tenant"], info["row"], info["arrival_ns"]) == ("a", 5, 100_000_000)


def test_a_closed_replica_passes_the_request_on(tmp_path):
    environment = RouterEnv(written(tmp_path, POOLS))           # of 3 + 4 places 1 + 2 are open: 0, 3 and 4
    environment.reset()
    assert environment.action_mask().tolist() == [True, False, False, True, True, False, False]

    infos = [environment.step(action)[4] for action in (0, 1, 6)]

    assert [info["was_open"] for info in infos] == [True, False, False]
    assert environment.unwrapped._episode.decision.accounts["dispatched"].tolist() == [2, 0, 0, 1, 0, 0, 0]


def test_environments_side_by_side_have_seeds_in_a_row(tmp_path):
    path, several = written(tmp_path, FLEET), []
    for processes in (True, False):
        environments = vectorised(RouterEnv, path, 2, processes=processes, sees_caches=False)
        observations, infos = environments.reset(seed=5)
        for _ in range(3):
            observations, *_, more = environments.step(np.array([0, 1]))
        several.append((infos["seed"].tolist(), observations["replicas"].tolist(), more["row"].tolist()))
        environments.close()

    assert several[0] == several[1]
    assert several[0][0] == [5, 6]


def test_an_agent_is_compared_as_built_in_policies_are(tmp_path):
    policies = {**built_in("router", ["round_robin"]), "agent": in_turn}

    found = compare(written(tmp_path, FLEET), policies, [1, 2])

    assert found.scores["agent"] == found.scores["round_robin"]


def test_a_step_needs_an_episode(tmp_path):
    with pytest.raises(gymnasium.error.ResetNeeded):
        RouterEnv(written(tmp_path, FLEET)).step(0)
