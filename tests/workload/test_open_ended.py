"""Loads that only their end bounds send as many requests as they can; iterations last 1 ms, numbers by hand."""
import numpy as np
import pytest
from msgspec.structs import replace

import simulator
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.workload.columns import Columns
from simulator.workload.load import load
from simulator.workload.open_ended import Enough, first_plays
from simulator.workload.script import Edges, Group, Script, Slots
from support.scripts import MS, ns

EXPERIMENT = """
engine = {num_gpu_blocks = 1000, max_model_len = 4096, async_scheduling = false}
latency = {backend = "linear", base_us = 1000, per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}
[workload]
"""
LENGTHS = """
prompt_tokens = {distribution = "uniform", max = 500}
output_tokens = {distribution = "constant", tokens = 1}
"""
DRAWN = LENGTHS.replace('"constant", tokens = 1', '"uniform", min = 1, max = 9')
A = 'id = "a"\ntenant = "A"\nload = {mode = "concurrency", concurrency = 2}'
B = 'id = "b"\ntenant = "B"\nload = {mode = "concurrency", concurrency = 1, think_time_s = 0.004}'
C = 'id = "c"\ntenant = "C"\narrival = {process = "constant"}'


@pytest.fixture
def file(tmp_path):
    """Return a function that writes an experiment: keys of [workload], then a text for each client."""
    def write(keys, *clients, lengths=LENGTHS):
        kind = 'type = "clients"\n' if clients else ""
        listed = "".join(f"[[workload.clients]]\n{client}\n{lengths}" for client in clients)
        (tmp_path / "e.toml").write_text(f"{EXPERIMENT}{kind}{keys}\n{listed}")
        return tmp_path / "e.toml"
    return write


def sent_ms(result, tenant):
    requests = result.requests[result.requests["tenant"] == result.labels["tenant"].index(tenant)]
    assert (requests["arrival_ns"] >= 0).all()
    return (requests["arrival_ns"] / MS).tolist()


def test_each_client_sends_as_many_as_its_slots_take(file):
    # 1 ms a request: a's two slots send 400 in 0.2 s, more than the first guess of 128; b's one each 5 ms
    result = simulator.run(file("duration_s = 0.2", A, B))

    assert sent_ms(result, "A") == [time for time in range(200) for _ in "ab"]
    assert sent_ms(result, "B") == [*range(0, 200, 5)]
    assert result.summary["requests"]["not_sent"] == 0


def test_a_number_may_bound_one_and_the_duration_another(file):
    result = simulator.run(file("duration_s = 0.02", f"{A}\nnum_requests = 3", B))

    assert sent_ms(result, "A") == [0, 0, 1]
    assert sent_ms(result, "B") == [0, 5, 10, 15]


def test_they_stand_beside_clients_at_rates(file):
    result = simulator.run(file("rate_per_s = 1000.0\nnum_requests = 3\nduration_s = 0.02", B, C))

    assert sent_ms(result, "B") == [0, 5, 10, 15]
    assert sent_ms(result, "C") == [1, 2, 3]


def test_slots_that_all_clients_share_may_be_bounded_by_a_duration_alone(file):
    path = file('duration_s = 0.1\nload = {mode = "concurrency", concurrency = 3}', C, 'id = "d"\nrate_share = 3.0')
    result = simulator.run(path)

    assert len(result.requests) == 300                      # the first guess was 192
    assert sorted((result.requests["arrival_ns"] / MS).tolist()) == [time for time in range(100) for _ in "abc"]
    assert len(sent_ms(result, "C")) == pytest.approx(75, abs=25)


def test_and_beside_them_those_of_one_client(file):
    path = file('duration_s = 0.02\nload = {mode = "concurrency", concurrency = 3}', C, B)
    result = simulator.run(path)

    assert sent_ms(result, "B") == [0, 5, 10, 15]
    assert len(sent_ms(result, "C")) == 60


@pytest.mark.parametrize("assign", ["static", "dynamic"])
def test_lanes_of_drawn_requests_may_be_bounded_by_a_duration_alone(file, assign):
    path = file(f'type = "synthetic"\nduration_s = 0.1\nload = {{mode = "lanes", lanes = 2, assign = "{assign}"}}\n'
                f"{LENGTHS}")

    assert (simulator.run(path).requests["arrival_ns"] / MS).tolist() == [time for time in range(100) for _ in "ab"]


def test_as_many_as_are_used_are_the_first_of_more(file):
    ended = simulator.run(file("duration_s = 0.3", A, B, lengths=DRAWN))
    many = [f"{client}\nnum_requests = 900" for client in (A, B)]
    longer = simulator.run(file("duration_s = 0.3", *many, lengths=DRAWN))

    for tenant, sent in (("A", 100), ("B", 20)):
        rows = [result.requests[result.requests["tenant"] == result.labels["tenant"].index(tenant)]
                for result in (ended, longer)]
        assert len(rows[0]) > sent and (rows[1]["arrival_ns"][len(rows[0]):] < 0).all()
        for field in ("arrival_ns", "completed_ns", "prompt_tokens"):
            assert rows[0][field].tolist() == rows[1][field][:len(rows[0])].tolist()


def test_ids_and_what_is_drawn_by_them_do_not_depend_on_the_guess(file):
    keys = "rate_per_s = 50.0\nnum_requests = 5\nduration_s = 1.0\nadapters = {names = ['x', 'y', 'z']}"
    section = load_experiment(file(keys, C, A, B)).workload
    few, many = (load(section, 1, Enough(guess)) for guess in (3, 20))
    of_few, of_many = (dict(zip(built.request_ids.tolist(), zip(
        built.requests["prompt_tokens"].tolist(), built.demands["adapter"].tolist(), strict=True), strict=True))
        for built in (few, many))

    assert sorted(of_many)[:5] == [0, 1, 2, 3, 4] and len(of_few) == 5 + 3 * 3
    assert of_few.items() <= of_many.items()


def test_more_may_warm_up_than_the_first_guess_has(file):
    path = file("duration_s = 0.4\nmeasure = {warmup_requests = 300}", A)

    assert simulator.run(path).requests["measured"].sum() == 500
    with pytest.raises(InputErrors, match="leave none of 800 requests"):
        simulator.run(path, {"workload.measure.warmup_requests": 800})


def test_warm_ups_come_before_them(file):
    result = simulator.run(file("duration_s = 0.005\nwarmup = {copies_of_first = 2}", B))

    assert sorted((result.requests["arrival_ns"] / MS).tolist()) == [0, 0, 1]       # both copies at once, then b's


@pytest.mark.parametrize(("keys", "clients", "message"), [
    ("", [A, B], 'workload: clients "a", "b": give num_requests of each, or duration_s'),
    ("", [f"{A}\nnum_requests = 3", B], 'workload: clients "b": give num_requests of each, or duration_s'),
    ("num_requests = 3\nduration_s = 1.0", [A, B], "workload: num_requests: no client comes at a rate")])
def test_loops_without_an_end_are_refused(file, keys, clients, message):
    with pytest.raises(InputErrors) as error:
        load_experiment(file(keys, *clients))
    assert message in str(error.value)


def test_what_comes_again_has_no_loads_of_clients_beside_it(file):
    lanes = 'load = {mode = "lanes", lanes = 2, recycle = true}\nduration_s = 0.02\nnum_requests = 3'
    assert len(simulator.run(file(lanes, C)).requests) == 2 * 20

    with pytest.raises(InputErrors, match=r"workload\.load\.recycle: expected false beside clients"):
        load(load_experiment(file(lanes, C, B)).workload, 1)


def test_a_guess_of_too_many_is_refused(file):
    crowd = 'id = "a"\nload = {mode = "concurrency", concurrency = 2_000_000_000}'
    with pytest.raises(InputErrors, match=r"workload\.duration_s: 2000000000 slots are more than 1000000000 requests"):
        load(load_experiment(file("duration_s = 1.0", crowd)).workload, 1)


def test_of_open_ended_groups_the_first_plays_are_kept():
    # Plays of 1, 2, 1, 2, 1 requests; of the first group 2 of 3, of the second both, which only it says are a guess.
    columns = Columns(np.zeros(7, np.int64), np.arange(7), np.arange(7), request_ids=[*"abcdefg"])
    edges = Edges(np.array([1, 4]), np.array([2, 5]), ns([3, 4]), np.array([False, True]))
    script = Script(
        (Group(np.array([0, 1, 3]), Slots(ns([0])), is_open_ended=True), Group(np.array([2, 4]))), ns([0, 1, 2, 3, 4]),
        play_begins=np.array([0, 1, 3, 4, 6, 7]), offset_ns=np.arange(7), rest_ns=10 * np.arange(7), edges=edges)

    kept, left = first_plays(columns, script, (2, 1))

    assert kept.request_ids == ["a", "b", "c", "d", "g"]
    assert [group.plays.tolist() for group in left.groups] == [[0, 1], [2, 3]]
    assert not any(group.is_open_ended for group in left.groups)
    assert (left.start_ns / MS).tolist() == [0, 1, 2, 4]
    assert left.play_begins.tolist() == [0, 1, 3, 4, 5]
    assert (left.offset_ns.tolist(), left.rest_ns.tolist()) == ([0, 1, 2, 3, 6], [0, 10, 20, 30, 60])
    assert (left.edges.sources.tolist(), left.edges.targets.tolist()) == ([1], [2])
    assert left.timeout_ns is None

    plain = replace(script, play_begins=None, offset_ns=None, edges=None, rest_ns=None, timeout_ns=np.arange(5))
    kept, left = first_plays(columns, plain, (1, 0))
    assert (left.play_begins, left.timeout_ns.tolist()) == (None, [0, 2, 4])


def test_clients_who_are_refused_at_once_need_a_delay(file):
    lengths = LENGTHS.replace('"uniform", max = 500', '"constant", tokens = 4096')
    path = file(f'type = "synthetic"\nduration_s = 0.01\nload = {{mode = "concurrency", concurrency = 2}}{lengths}')

    with pytest.raises(InputErrors, match=r"never get beyond 0 s; give client_delay_s, or how many requests"):
        simulator.run(path)
    assert len(simulator.run(path, {"workload.load.client_delay_s": 0.001}).requests) == 20
