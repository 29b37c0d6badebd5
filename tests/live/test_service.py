"""The fleet on a clock that is set by hand."""
from itertools import pairwise

import pytest

from simulator.domain import records
from simulator.live import service as service_module
from simulator.live.clock import FAST, Clock
from simulator.live.fleet import Full, LiveRequest
from simulator.live.service import Service
from support.live_sessions import fleet_of

MS = 1_000_000
# The worked example of specs/serve.md, 4.5: 1 ms to the queue, a prefill of 38 ms, 8 ms a token.
EXAMPLE = ["topology.replicas=1", "latency.base_us=8000.0", "latency.per_sequence_us=0.0",
           "latency.per_prefill_token_us=1000.0", "latency.per_context_token_us=0.0",
           "latency.host.queue_base_us=1000.0"]


class Wall:
    """A wall clock that is set by hand."""

    def __init__(self, now_ns=0):
        self.now_ns = now_ns

    def __call__(self):
        return self.now_ns


class Client:
    """Keeps the news of its request: (tokens, simulated ns, wall ns when due)."""

    def __init__(self):
        self.news = []

    def __call__(self, message, due_ns):
        self.news.append((message.tokens, message.time_ns, due_ns))


def play_until(service, wall, until_ns):
    """Let the wall clock pass, with a turn of the service whenever it asks for one."""
    while (next_ns := service.turn()) is not None and next_ns <= until_ns:
        wall.now_ns = max(next_ns, wall.now_ns)
    wall.now_ns = until_ns


def test_the_worked_example(tmp_path):
    _, fleet = fleet_of(tmp_path, EXAMPLE)
    wall, client = Wall(1_000 * MS), Client()
    service = Service(fleet, Clock(2, wall))
    play_until(service, wall, 1_030 * MS)
    row = service.submit(LiveRequest(30, 5, 5), client)
    play_until(service, wall, 1_055 * MS)
    assert fleet.workload.requests["arrival_ns"][row] == 60 * MS
    assert fleet.workload.requests["enqueued_ns"][row] == 61 * MS
    assert client.news == [(1, 99 * MS, 1_049_500_000), (1, 107 * MS, 1_053_500_000)]
    service.pause()
    assert service.clock.now_ns() == 110 * MS
    wall.now_ns = 2_055 * MS
    assert service.turn() is None
    service.change_speed(1)
    service.resume()
    play_until(service, wall, 2_080 * MS)
    assert client.news[2:] == [(1, 115 * MS, 2_060 * MS), (1, 123 * MS, 2_068 * MS), (1, 131 * MS, 2_076 * MS),
                               (0, 131 * MS, 2_076 * MS)]


def test_nothing_is_told_before_it_is_due(tmp_path):
    _, fleet = fleet_of(tmp_path)
    wall, seen = Wall(), []
    service = Service(fleet, Clock(0.3, wall))
    for _ in range(8):
        service.submit(LiveRequest(40, 12, 12), lambda message, due_ns: seen.append((due_ns, wall.now_ns)))
        play_until(service, wall, wall.now_ns + 3_333_333)
    play_until(service, wall, 10**11)
    assert len(seen) == 8 * 13
    assert all(due_ns <= now_ns for due_ns, now_ns in seen)
    assert any(due_ns == now_ns for due_ns, now_ns in seen)


def test_fast_time_needs_no_time(tmp_path):
    _, fleet = fleet_of(tmp_path)
    wall, client = Wall(), Client()
    service = Service(fleet, Clock(FAST, wall))
    service.submit(LiveRequest(30, 5, 5), client)
    while service.turn() is not None:
        assert wall.now_ns == 0
    assert [tokens for tokens, _, _ in client.news] == [1, 1, 1, 1, 1, 0]
    stands_ns = service.clock.now_ns()
    service.submit(LiveRequest(30, 5, 5), client)
    assert fleet.workload.requests["arrival_ns"][1] == stands_ns + 1


def test_fast_time_does_not_run_for_an_autoscaler_alone(tmp_path):
    _, fleet = fleet_of(tmp_path, ['pools=[{name="all",replicas=1,max_replicas=3}]',
                                   'autoscaling={policy="utilisation",interval_s=0.01}'])
    service, client = Service(fleet, Clock(FAST, Wall())), Client()
    assert service.turn() is None
    service.submit(LiveRequest(30, 5, 5), client)
    while service.turn() is not None:
        pass
    assert client.news[-1][:2] == (0, service.clock.now_ns())
    service.submit(LiveRequest(30, 5, 5), client)
    service.abort()
    assert fleet.is_idle


def test_an_engine_that_cannot_go_on_ends_all_requests(tmp_path):
    _, fleet = fleet_of(tmp_path, ["engine.max_model_len=256", "topology.replicas=1"])
    service, client = Service(fleet, Clock(FAST, Wall())), Client()
    service.submit(LiveRequest(10, 240, 240), client)       # more than all blocks
    while service.turn() is not None:
        pass
    assert fleet.is_stopped
    assert client.news[-1][0] == 0
    assert sum(tokens for tokens, _, _ in client.news) < 240


@pytest.mark.parametrize("until_ns", [1, 20 * MS, 40 * MS, 60 * MS])
def test_a_client_that_leaves_frees_the_blocks(tmp_path, until_ns):
    _, fleet = fleet_of(tmp_path, ["topology.replicas=1", "engine.enable_prefix_caching=false"])
    kv, wall, clients = fleet.cluster.replicas[0].rank.kv, Wall(), [Client(), Client()]
    service, free = Service(fleet, Clock(1, wall)), kv.free_blocks
    rows = [service.submit(LiveRequest(100, 40, 40), client) for client in clients]
    play_until(service, wall, until_ns)
    service.leave(rows[0])
    heard = len(clients[0].news)
    play_until(service, wall, 10**10)
    assert fleet.workload.requests["status"][rows].tolist() == [records.TIMED_OUT, records.COMPLETED]
    assert len(clients[0].news) == heard < 41
    assert sum(tokens for tokens, _, _ in clients[1].news) == 40
    assert kv.free_blocks == free


def test_a_session_has_room_for_so_many_requests(tmp_path):
    _, fleet = fleet_of(tmp_path, most_requests=2)
    service = Service(fleet, Clock(1, Wall()))
    for _ in range(2):
        service.submit(LiveRequest(10, 5, 5), Client())
    with pytest.raises(Full):
        service.submit(LiveRequest(10, 5, 5), Client())


def test_a_step_that_is_behind_does_little_at_a_time(tmp_path, monkeypatch):
    # 20 tokens of 8 ms are due at once. No step may take any time: each does what one more instant brings, at last.
    monkeypatch.setattr(service_module, "TURN_NS", 0)
    monkeypatch.setattr(service_module, "FIRST_SLICE_NS", 1)
    _, fleet = fleet_of(tmp_path, EXAMPLE)
    wall, client = Wall(), Client()
    service = Service(fleet, Clock(1, wall))
    service.submit(LiveRequest(30, 20, 20), client)
    wall.now_ns = 10_000 * MS

    found = []
    while (next_ns := service.step()) is not None:
        assert next_ns < wall.now_ns
        found.append(len(client.news))

    assert [tokens for tokens, *_ in client.news] == [1] * 20 + [0]
    assert len(found) >= 20
    assert max(after - before for before, after in pairwise(found)) == 1
