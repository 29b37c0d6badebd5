"""What holds where requests come because others ended, in clusters in which everything happens at once."""
from collections import Counter
from random import Random

import numpy as np
import pytest

import simulator
from invariants.test_whole_cluster import experiment_of
from simulator.config.load import load_experiment
from simulator.domain import records
from simulator.workload.limits import MISSING
from simulator.workload.script import Edges, Group, Script, Slots, Turns
from support.scripts import MS, scripted

SENT = (records.COMPLETED, records.REJECTED, records.DROPPED, records.TIMED_OUT, records.FAILED)
HORIZON_S = 0.4             # of experiments that have one


def script_of(rng):
    """Return a random script."""
    sizes = [rng.choice([1, 1, 2, 3, 5]) for _ in range(rng.randint(3, 12))]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    edges = [edge for play in range(len(sizes)) for edge in edges_of(rng, begins[play], begins[play + 1])]
    columns = [np.array(column, np.int64) for column in zip(*edges, strict=True)] if edges else None
    by_turns = rng.random() < 0.3
    groups, starts, spare = turns_of(rng, len(sizes)) if by_turns else (*groups_of(rng, len(sizes)), None)
    roots = np.ones(begins[-1], bool)
    if edges:
        roots[columns[1]] = False
    offsets = np.where(roots, 0, 1) * np.array([rng.choice([0, 0, 7 * MS]) for _ in roots])
    return Script(
        groups, starts, begins, offsets, Edges(*columns[:3], columns[3].astype(bool)) if edges else None,
        rest_ns=np.array([rng.choice([0, 0, 12 * MS]) for _ in roots]),
        client_delay_ns=rng.choice([0, 0, MS // 3]), goes_on_after_rejection=rng.random() < 0.5,
        idle_cap_ns=rng.choice([None, None, 20 * MS]),
        timeout_ns=rng.choice([None, np.array([rng.choice([MISSING, 40 * MS, 300 * MS]) for _ in roots])]),
        from_engine=rng.random() < 0.3, spare=spare,
        rest_share=np.array([rng.choice([0.0, 0.4, 1.0, 2.5]) for _ in roots]) if by_turns else None)


def edges_of(rng, first, last):
    """Return edges that make a session or any graph, with delays that let ends and arrivals meet."""
    delays = [0, 0, 5 * MS, 10 * MS, 3 * MS + 1, 60 * MS]
    for target in range(first + 1, last):
        if rng.random() < 0.85:
            yield target - 1, target, rng.choice(delays), rng.random() < 0.2
        for source in range(first, target - 1):
            if rng.random() < 0.2:
                yield source, target, rng.choice(delays), rng.random() < 0.3


def groups_of(rng, num_plays):
    owner = np.array([rng.randint(0, 2) for _ in range(num_plays)]) if rng.random() < 0.5 else np.zeros(num_plays, int)
    starts = np.cumsum([rng.choice([0, 0, 5 * MS, 17 * MS]) for _ in range(num_plays)])
    groups = []
    for index in np.unique(owner):
        after = len(groups) - 1 if groups and rng.random() < 0.4 else -1
        groups.append(Group(
            np.flatnonzero(owner == index), slots_of(rng),
            holds_play=rng.random() < 0.5, ends_ns=rng.choice([None, None, 150 * MS]), after=after,
            after_dispatch=rng.random() < 0.5, interval_ns=rng.choice([0, 5 * MS]),
            client_delay_ns=rng.choice([None, None, MS // 7]), cancel_ns=rng.choice([None, None, 400 * MS])))
    return tuple(groups), starts


def slots_of(rng):
    """Return random slots: some stay open, some close, and of these some open again."""
    count, stays = rng.choice([1, 2, 4]), rng.randint(1, 3)
    opens_ns = 4 * MS * np.arange(count)
    if rng.random() < 0.25:
        return None
    if rng.random() < 0.75:
        return Slots(opens_ns)
    opens_ns = (opens_ns[:, None] + 100 * MS * np.arange(stays)).ravel()
    return Slots(opens_ns, opens_ns + MS * rng.choice([20, 60, 95]), np.tile(np.arange(stays) > 0, count))


def turns_of(rng, num_plays):
    """Return slots that serve plays by turns, and the plays that they share; nothing has a time of its own."""
    most, slots, groups = rng.randint(1, 3), rng.randint(1, 3), []
    turns = Turns(most, rng.choice([None, None, rng.randint(1, 6)]), rng.random() < 0.5, rng.random() < 0.5)
    own = min(most * slots, num_plays)
    ends_ns = rng.choice([None, None, 150 * MS])
    for slot in range(slots):
        groups.append(Group(np.arange(slot * own // slots, (slot + 1) * own // slots), Slots(np.array([4 * MS * slot])),
                            turns=turns, ends_ns=ends_ns, cancel_ns=rng.choice([None, None, 400 * MS])))
    return tuple(groups), np.zeros(num_plays, np.int64), np.arange(own, num_plays)


def client_delays(script):
    """Return how long the client of each request takes to do what it does because of the end."""
    of_play = np.full(len(script.start_ns), script.client_delay_ns)
    for group in script.groups:
        of_play[group.plays] = script.client_delay_ns if group.client_delay_ns is None else group.client_delay_ns
    return np.repeat(of_play, np.diff(script.play_begins))


def workload_of(rng, script):
    count = int(script.play_begins[-1])
    prompts = [rng.choice([3, 16, 40, 120, 200]) for _ in range(count)]
    workload = scripted([rng.choice([0, 1, 2, 9, 30]) for _ in range(count)], script, prompts=prompts)
    workload.demands["priority"] = [rng.randint(0, 2) for _ in range(count)]
    return workload


@pytest.fixture(scope="module", params=range(80))
def case(request, tmp_path_factory):
    """Return seed and experiment."""
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "requests.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n")
    (folder / "experiment.toml").write_text(experiment_of(Random(400 + request.param)))
    return request.param, folder / "experiment.toml"


def result_of(case, **overrides):
    seed, experiment = case
    rng = Random(seed)
    workload = workload_of(rng, script_of(rng))
    return simulator.run(load_experiment(experiment, overrides), workload=workload), workload


@pytest.fixture(scope="module")
def run(case):
    return result_of(case)


def test_steps_and_runs_of_iterations_agree(case, run):
    (result, _), (stepwise, _) = run, result_of(case, **{"engine.fast_forward": False})

    assert result.requests.tolist() == stepwise.requests.tolist()
    assert result.summary == stepwise.summary


def test_every_request_ends_or_is_not_sent(run):
    result, workload = run
    requests = workload.requests
    counts = Counter(requests["status"].tolist())

    if result.summary["complete"] and not result.summary["diagnosis"] and result.summary["clock_s"] != HORIZON_S:
        assert set(counts) <= {*SENT, records.NOT_SENT}
    assert ((requests["arrival_ns"] >= 0) == (requests["status"] != records.NOT_SENT))[
        requests["status"] != records.PENDING].all()
    assert (workload.scheduled_ns <= requests["arrival_ns"]).all()


def test_nobody_comes_before_those_it_waits_for_let_it_go(run):
    _, workload = run
    script, requests = workload.script, workload.requests
    if script.edges is None or script.idle_cap_ns is not None:
        return
    client_delay_ns = client_delays(script)
    for source, target, delay_ns, from_dispatch in zip(
            script.edges.sources, script.edges.targets, script.edges.delays_ns, script.edges.from_dispatch,
            strict=True):
        if requests["arrival_ns"][target] < 0:
            continue
        assert requests["arrival_ns"][source] >= 0
        if from_dispatch:
            assert requests["arrival_ns"][target] >= requests["arrival_ns"][source] + delay_ns
        elif not script.goes_on_after_rejection:
            assert requests["status"][source] == records.COMPLETED
            if not script.from_engine:
                assert requests["arrival_ns"][target] >= (
                    requests["completed_ns"][source] + delay_ns + client_delay_ns[source])


def test_no_more_run_at_once_than_there_are_slots(run):
    _, workload = run
    script, requests = workload.script, workload.requests
    for group in script.groups:
        if group.slots is None or group.holds_play:
            continue
        rows = np.concatenate([np.arange(script.play_begins[play], script.play_begins[play + 1])
                               for play in group.plays])
        rows = rows[requests["status"][rows] == records.COMPLETED]
        changes = sorted([(int(time), -1) for time in requests["completed_ns"][rows]]
                         + [(int(time), 1) for time in requests["arrival_ns"][rows]])
        assert max(np.cumsum([change for _, change in changes]), default=0) <= num_slots(group.slots)


def num_slots(slots):
    return len(slots.opens_ns) - (0 if slots.reopens is None else int(slots.reopens.sum()))


def test_nobody_comes_while_all_slots_are_closed(run):
    _, workload = run
    script = workload.script
    for group in script.groups:
        if group.slots is None or group.slots.closes_ns is None or group.after >= 0:
            continue
        for play in group.plays.tolist():
            arrivals_ns = workload.requests["arrival_ns"][script.play_begins[play]:script.play_begins[play + 1]]
            arrivals_ns = arrivals_ns[arrivals_ns >= 0] - group.interval_ns
            if group.holds_play and len(arrivals_ns):           # what follows may come later
                arrivals_ns = arrivals_ns.min(keepdims=True)
            for time_ns in arrivals_ns.tolist():
                assert np.any((group.slots.opens_ns <= time_ns) & (time_ns < group.slots.closes_ns))
