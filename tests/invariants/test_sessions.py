"""Sessions and plays with random loads, warm-ups and histories, on random clusters."""
import json
from random import Random

import numpy as np
import pytest

import simulator
from invariants.test_plays import random_trace, text_of
from invariants.test_whole_cluster import experiment_of
from simulator.config.load import load_experiment
from simulator.domain import records
from workload.drawing.test_conversations import given, of

HORIZON_S = 0.4             # of clusters that have one
DRAWN = ('{distribution = "uniform", min = 1, max = 30}', '{distribution = "constant", value = 12}')
THINKING = ("0.0", "0.01", '{distribution = "exponential", mean = 0.02}')


def talk_of(rng):
    """Return drawn conversations as TOML."""
    keys = [f"num_sessions = {rng.randint(4, 16)}", 'arrival = {process = "poisson", rate_per_s = 100.0}',
            f'sessions.rounds = {{distribution = "uniform", min = 1, max = {rng.randint(1, 5)}}}',
            f"sessions.new_tokens = {rng.choice(DRAWN)}", f"sessions.output_tokens = {rng.choice(DRAWN)}",
            f"sessions.think_time_s = {rng.choice(THINKING)}",
            f'sessions.on_overflow = "{rng.choice(["slide", "end"])}"']
    if rng.random() < 0.5:
        keys += [f"sessions.max_tokens = {rng.choice(DRAWN)}",
                 f'sessions.history = "{rng.choice(["actual", "declared"])}"']
    if rng.random() < 0.5:
        keys += [f"sessions.reasoning_tokens = {rng.choice(DRAWN)}",
                 f"sessions.history_keeps_reasoning = {rng.choice(['true', 'false'])}"]
    if rng.random() < 0.6:
        paced = ['think_time_s = {distribution = "exponential", mean = 0.02}',
                 f'think_time_from = "{rng.choice(["arrival", "arrival_mean"])}"']
        by_turns = rng.random() < 0.7
        rests = rng.choice([[], ["think_time_s = 0.01"], paced if by_turns else []])
        keys += ["load.mode = \"concurrency\"", f"load.concurrency = {rng.randint(1, 3)}", 'load.unit = "session"',
                 *(f"load.{each}" for each in rests)]
        if by_turns:
            keys += ["load.sessions_per_slot = 1",
                     f'load.ends_with = "{rng.choice(["last_session", "each_slot", "first_slot"])}"']
            keys += [f"load.requests_per_slot = {rng.randint(1, 6)}"] * (rng.random() < 0.4)
    if rng.random() < 0.5:
        keys += [f"load.private_prefix_tokens = {rng.choice([5, 32])}"]
    if rng.random() < 0.4 and "max = 1}" not in keys[2]:
        keys += ['warmup.primers = "first_turn"']
    return 'type = "sessions"\n' + "\n".join(keys) + "\n"


def play_of(rng, folder):
    """Return recorded plays in lanes as TOML."""
    text = text_of(random_trace(np.random.default_rng(rng.randrange(10**6))))
    (folder / "plays.csv").write_text(text)
    keys = ['type = "trace"', 'path = "plays.csv"', 'load.mode = "lanes"', f"load.lanes = {rng.randint(1, 4)}",
            f'load.assign = "{rng.choice(["static", "dynamic"])}"', 'load.snapshot = "uniform"',
            f"load.private_prefix_tokens = {rng.choice([0, 16])}",
            f"load.tree_idle_cap_s = {rng.choice([0.002, 10.0])}",
            f'warmup.primers = "{rng.choice(["none", "last_turn", "one_token"])}"']
    keys += ["warmup.requests_per_lane = 2"] * ("none" not in keys[-1] and rng.random() < 0.5)
    keys += [f"warmup.copies_of_first = {rng.randint(0, 2)}"]
    keys += rng.choice([[], ["duration_s = 0.1"], ["load.recycle = true", "max_requests = 30"]])
    rows = text.splitlines()[1:]
    if len(rows) == len({row.split(",")[4] for row in rows}):       # no play has several
        keys = [key for key in keys if "idle" not in key]
    return "\n".join(keys) + "\n"


def benchmark_of(rng, folder):
    """Return conversations of vLLM's multi-turn benchmark as TOML."""
    content = given(turns=of("uniform", min=2, max=rng.choice([4, 9])), asked=of("uniform", min=2, max=20),
                    answered=of("uniform", min=1, max=20), num_conversations=rng.randint(6, 14))
    (folder / "talks.json").write_text(json.dumps(content))
    keys = ['type = "vllm_multi_turn"', 'path = "talks.json"', f"num_clients = {rng.randint(1, 3)}",
            f"max_active_conversations = {rng.randint(3, 6)}", f"early_stop = {rng.choice(['true', 'false'])}",
            f"warmup_step = {rng.choice(['true', 'false'])}"]
    keys += ["request_rate_per_s = 60.0"] * (rng.random() < 0.5) + ["max_num_requests = 12"] * (rng.random() < 0.3)
    keys += ["request_timeout_s = 0.05"] * (rng.random() < 0.3)
    return "\n".join(keys) + "\n"


@pytest.fixture(scope="module", params=range(60))
def case(request, tmp_path_factory):
    """Return a random experiment."""
    rng, folder = Random(request.param), tmp_path_factory.mktemp("sessions")
    cluster = experiment_of(rng).replace('workload = {type = "trace", path = "requests.csv"}\n', "")
    kind = request.param % 3
    workload = talk_of(rng) if kind == 0 else (play_of if kind == 1 else benchmark_of)(rng, folder)
    (folder / "experiment.toml").write_text(f"{cluster}[workload]\n{workload}")
    return folder / "experiment.toml"


def result_of(experiment, **overrides):
    return simulator.run(load_experiment(experiment, overrides))


@pytest.fixture(scope="module")
def run(case):
    return result_of(case)


def test_steps_and_runs_of_iterations_agree(case, run):
    stepwise = result_of(case, **{"engine.fast_forward": False})

    assert run.requests.tolist() == stepwise.requests.tolist()
    assert run.summary == stepwise.summary


def test_warm_ups_are_over_when_the_others_come(run):
    requests = run.requests[run.requests["arrival_ns"] >= 0]
    if "measured" not in requests.dtype.names:
        return
    warm, others = requests[requests["measured"] == 0], requests[requests["measured"] == 1]
    if len(warm) and len(others) and (warm["status"] == records.COMPLETED).all():
        assert warm["completed_ns"].max() <= others["arrival_ns"].min()


def test_a_slot_serves_one_request_at_a_time(case, run):
    load = load_experiment(case).workload.load
    if load.sessions_per_slot is None:
        return
    sent = run.requests[(run.requests["arrival_ns"] >= 0) & (run.requests["status"] == records.COMPLETED)]
    for begin in sent["arrival_ns"].tolist():
        assert np.sum((sent["arrival_ns"] <= begin) & (sent["completed_ns"] > begin)) <= load.concurrency


def test_turns_of_a_session_follow_each_other(case, run):
    section = load_experiment(case).workload
    if section.type == "trace":
        return
    requests = run.requests[run.requests["arrival_ns"] >= 0]
    for session in np.unique(requests["session"]):
        turns = requests[requests["session"] == session]
        turns = turns[np.argsort(turns["request_id"])]
        assert (turns["arrival_ns"][1:] >= turns["completed_ns"][:-1]).all()
        assert (turns["status"][:-1] == records.COMPLETED).all()
