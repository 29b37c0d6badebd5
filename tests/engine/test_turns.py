"""Slots that serve several sessions by turns; every iteration lasts 1 ms, numbers worked out by hand, and a twin."""
from collections import deque
from itertools import chain
from random import Random

import pytest
from msgspec.structs import replace

from engine.test_scripted import expect, ms, run  # noqa: F401 (a fixture)
from simulator.domain import records
from support.scripts import by_turns, ns, scripted

COMPLETED, NOT_SENT = records.COMPLETED, records.NOT_SENT


def test_a_slot_serves_its_sessions_by_turns(run):      # noqa: F811
    # Two sessions of two turns, the second first: b0 0-2, a0 2-3, b1 3-4, a1 4-7.
    script = by_turns([2, 2], 1, 2)

    expect(run(scripted([1, 3, 2, 1], script)), [2, 4, 0, 3], [3, 7, 2, 4])


def test_a_new_session_goes_first(run):                 # noqa: F811
    # b has one turn: c, which takes its place, goes before a. b0 0-1, c0 1-2, a0 2-3, c1 3-4, a1 4-5.
    script = by_turns([2, 1, 2], 1, 2)

    expect(run(scripted([1, 1, 1, 1, 1], script)), [2, 4, 0, 1, 3], [3, 5, 1, 2, 4])


def test_slots_share_the_sessions_that_wait(run):       # noqa: F811
    # Slot 0 has a until 5; slot 1 is done with b at 1 and takes c, then d.
    script = by_turns([1, 1, 1, 1], 2, 1)

    expect(run(scripted([5, 1, 2, 1], script)), [0, 0, 1, 3], [5, 1, 3, 4])


def test_who_is_ready_first_goes_first(run):            # noqa: F811
    # b0 0-1 and a0 1-2; b1 is ready at 11, a1 at 5: the slot waits for a1, 5-6, then for b1.
    script = by_turns([2, 2], 1, 2, delays_ms=[0, 3, 0, 10])

    expect(run(scripted([1, 1, 1, 1], script)), [1, 5, 0, 11], [2, 6, 1, 12])


def test_a_slot_ends_after_so_many_requests(run):       # noqa: F811
    requests = run(scripted([1] * 6, by_turns([3, 3], 1, 1, most_requests=4)))

    assert ms(requests, "arrival_ns") == [0, 1, 2, 3, None, None]


def test_a_slot_leaves_what_it_has_when_it_finds_nothing_new(run):      # noqa: F811
    # b0 0-1: nothing takes its place, and a is left with all its turns; the other slot serves d and c.
    script = by_turns([3, 1, 2, 2], 2, 2, leaves=True)
    requests = run(scripted([1] * 8, script))

    assert ms(requests, "arrival_ns") == [None, None, None, 0, 1, None, 0, 2]


def test_the_first_slot_that_finds_nothing_stops_all(run):      # noqa: F811
    # Slot 0 is free at 3, and rests until 5: slot 1 sends at 2 and at 4, not at 6.
    script = by_turns([1, 9], 2, 1, leaves=True, stops_all=True, rests_ms=[2] + [0] * 9)
    requests = run(scripted([3] + [2] * 9, script))

    assert ms(requests, "arrival_ns") == [0, 0, 2, 4] + [None] * 6
    assert requests["status"].tolist() == [COMPLETED] * 4 + [NOT_SENT] * 6


def test_the_last_session_taken_tells_slots_that_rest(run):     # noqa: F811
    # Slot 0 rests from 1 to 4 when slot 1 takes the last session at 2: it would find none at 4, and stops all.
    script = by_turns([1, 1, 5], 2, 1, leaves=True, stops_all=True, rests_ms=[3, 0, 0, 0, 0, 0, 0])
    requests = run(scripted([1, 2] + [1] * 5, script))

    assert ms(requests, "arrival_ns") == [0, 0, 2, 3, None, None, None]


def test_a_refused_turn_ends_its_session_alone(run):            # noqa: F811
    # b's prompt is too long: it is refused at 0, b1 is not sent, and a goes on.
    requests = run(scripted([1] * 4, by_turns([2, 2], 1, 2), prompts=[1, 1, 20_000, 1]))

    assert ms(requests, "arrival_ns") == [0, 1, 0, None]


@pytest.mark.parametrize(("leaves", "arrivals"), [(False, [20, 21, 0, None]), (True, [None, None, 0, None])])
def test_a_client_that_gave_up_waiting_leaves(run, leaves, arrivals):   # noqa: F811
    # b0 would take 50 ms, and its client waits for 19.5: the iteration that runs then ends at 20.
    script = by_turns([2, 2], 1, 2, leaves=leaves)
    requests = run(scripted([1, 1, 50, 1], replace(script, timeout_ns=ns([19.5] * 4))))

    assert requests["status"].tolist()[2:] == [records.TIMED_OUT, NOT_SENT]
    assert ms(requests, "arrival_ns") == arrivals


@pytest.mark.parametrize(("share", "arrivals"), [
    (0.0, [0, 12, 18, 30]),         # 5 ms after each end
    (1.0, [0, 7, 12, 19]),          # 5 ms after each arrival: at once where the request took longer
    (0.5, [0, 8.5, 14, 22.5])])     # 5 ms less half of the 7, 1, 7 ms that they took
def test_a_rest_is_shorter_by_a_share_of_the_duration(run, share, arrivals):    # noqa: F811
    script = by_turns([4], 1, 1, rests_ms=[5] * 4, shares=[share] * 4)
    requests = run(scripted([7, 0, 7, 1], script))

    assert ms(requests, "arrival_ns") == arrivals


# ---- a literal twin of the client of vLLM's multi-turn benchmark

def clients(lengths, rests_ms, num_clients, most_active, most_requests, ends_with):
    """Return when each turn of each conversation is sent, ms; None: it is not. And all instants of loop tops.

    lengths, rests_ms : of each turn, by conversation.
    """
    queue, sent = deque(range(len(lengths))), [[None] * len(turns) for turns in lengths]
    active, ring = [{} for _ in range(num_clients)], [deque() for _ in range(num_clients)]
    count, done = [0] * num_clients, [0] * len(lengths)
    tops, instants, stopped = [(0, client) for client in range(num_clients)], [], False
    for client in range(num_clients):
        fill(client, queue, active, ring, most_active)
    while tops:
        now, client = min(tops)
        tops.remove((now, client))
        instants.append(now)
        if count[client] == most_requests:
            stopped = stopped or ends_with == "first_slot"
            continue
        if stopped:
            continue
        if not fill(client, queue, active, ring, most_active) and (ends_with != "last_session" or not active[client]):
            stopped = stopped or ends_with == "first_slot"
            continue
        conversation = ring[client].pop()
        turn = done[conversation]
        sent[conversation][turn] = now
        count[client] += 1
        done[conversation] += 1
        if done[conversation] == len(lengths[conversation]):
            del active[client][conversation]
        else:
            ring[client].appendleft(conversation)
        tops.append((now + lengths[conversation][turn] + rests_ms[conversation][turn], client))
    return sent, instants


def fill(client, queue, active, ring, most_active):
    """Take conversations from the queue; say whether there were enough."""
    while len(active[client]) < most_active:
        if not queue:
            return False
        conversation = queue.popleft()
        active[client][conversation] = True
        ring[client].append(conversation)
    return True


def flat(lists):
    return list(chain.from_iterable(lists))


def drawn(rng, num_clients, most_active):
    num = num_clients * most_active + rng.randint(0, 8)
    lengths = [[rng.randint(1, 30) for _ in range(rng.randint(1, 6))] for _ in range(num)]
    return lengths, [[rng.choice([0, rng.randint(1, 400)]) for _ in turns] for turns in lengths]


@pytest.mark.parametrize("ends_with", ["last_session", "each_slot", "first_slot"])
@pytest.mark.parametrize("seed", range(25))
def test_slots_are_as_the_clients_of_the_benchmark(run, seed, ends_with):       # noqa: F811
    rng = Random(seed)
    num_clients, most_active = rng.randint(1, 4), rng.randint(1, 4)
    most_requests = rng.choice([None, None, rng.randint(1, 8)])
    while True:         # who is first at one instant is nobody's promise
        lengths, rests = drawn(rng, num_clients, most_active)
        sent, instants = clients(lengths, rests, num_clients, most_active, most_requests, ends_with)
        later = [instant for instant in instants if instant]
        if len(later) == len(set(later)):
            break
    script = by_turns([len(turns) for turns in lengths], num_clients, most_active, rests_ms=flat(rests),
                      most_requests=most_requests, leaves=ends_with != "last_session",
                      stops_all=ends_with == "first_slot")
    requests = run(scripted(flat(lengths), script))

    assert ms(requests, "arrival_ns") == flat(sent)
    assert set(requests["status"].tolist()) <= {COMPLETED, NOT_SENT}
