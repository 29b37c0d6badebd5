"""Requests that come when others let them; every iteration lasts 1 ms, numbers worked out by hand."""
import numpy as np
import pytest

from simulator.domain import records
from simulator.engine.build import build
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import Hooks
from simulator.latency.linear import Linear, LinearParameters
from simulator.results.memory import NO_SINK
from simulator.scheduling.vllm import VllmParameters
from simulator.workload.script import Group, Script, Slots
from support.engine import plan_of, record
from support.scripts import MS, loop, ns, plays, scripted

ONE_MS = LinearParameters(base_us=1000, per_sequence_us=0, per_prefill_token_us=0, per_context_token_us=0)


@pytest.fixture(params=[True, False], ids=["at once", "step by step"])
def run(request):
    """Run a workload; return its requests."""
    def run(workload, parameters=None, **setup):
        return record(workload, parameters or VllmParameters(async_scheduling=False), Linear(ONE_MS), details=False,
                      num_gpu_blocks=1001, block_size=16, max_model_len=10_000, fast_forward=request.param,
                      **setup).requests
    return run


def ms(requests, field):
    """Return times in milliseconds; None: never."""
    return [None if time < 0 else time / MS for time in requests[field].tolist()]


def expect(requests, arrivals, completions):
    assert ms(requests, "arrival_ns") == arrivals
    assert ms(requests, "completed_ns") == completions


def test_the_next_takes_a_slot_in_the_instant_in_which_it_is_free(run):
    # r1 ends at 1 and r2 is in the iteration that starts then; r0 and r2 end at 3.
    expect(run(scripted([3, 1, 2, 1, 1], loop(5, 2))), [0, 0, 1, 3, 3], [3, 1, 3, 4, 4])


def test_a_client_with_a_delay_misses_the_next_iteration(run):
    script = loop(5, 2, client_delay_ns=MS // 10)

    expect(run(scripted([3, 1, 2, 1, 1], script)), [0, 0, 1.1, 3.1, 4.1], [3, 1, 4, 5, 6])


def test_a_slot_rests_while_its_user_thinks(run):
    script = loop(5, 2, rest_ns=np.full(5, 5 * MS))

    expect(run(scripted([3, 1, 2, 1, 1], script)), [0, 0, 6, 8, 13], [3, 1, 8, 9, 14])


def test_a_ceiling_makes_clients_wait(run):
    script = loop(3, 1, starts_ms=[0, 0.5, 0.6])
    workload = scripted([2, 1, 1], script)

    expect(run(workload), [0, 2, 3], [2, 3, 4])
    assert ((workload.requests["arrival_ns"] - workload.scheduled_ns) / MS).tolist() == [0, 1.5, 2.4]


def test_slots_open_one_by_one(run):
    script = loop(4, 4, opens_ns=ns([0, 10, 20, 30]))

    assert ms(run(scripted([100, 1, 1, 1], script)), "arrival_ns") == [0, 10, 11, 12]


def test_a_slot_that_has_closed_lets_nobody_come(run):
    # One closes at 2: r0 ends at 3, so its slot is gone; the other serves all that are left.
    script = loop(4, 2, closes_ns=np.array([2 * MS, 100 * MS]))

    expect(run(scripted([3, 4, 1, 1], script)), [0, 0, 4, 5], [3, 4, 5, 6])


def test_a_slot_may_open_again(run):
    # One slot, open from 0 to 2 and from 10 on: r0 runs on until 3 and frees it until it opens again.
    script = loop(3, 1, opens_ns=ns([0, 10]), closes_ns=ns([2, 100]), reopens=np.array([False, True]))

    expect(run(scripted([3, 1, 1], script)), [0, 10, 11], [3, 11, 12])


def test_who_runs_when_a_slot_opens_again_still_holds_it(run):
    # Two slots, the first from 0 to 2, 5 to 7 and 9 to 20: r0 runs until 8, so that it has one slot still at 5.
    script = loop(5, 1, opens_ns=ns([0, 5, 9, 0]), closes_ns=ns([2, 7, 20, 2]),
                  reopens=np.array([False, True, True, False]))

    expect(run(scripted([8, 1, 2, 1, 1], script)), [0, 0, 1, 9, 10], [8, 1, 3, 10, 11])


def test_a_loop_is_dry_if_a_slot_was_open_when_nobody_was_left():
    # One request of 1 ms; its slot closes at 1 and opens again at 4. With an end at 4 nobody else could have come.
    for ends_ms, is_dry in ((4, False), (5, True)):
        script = loop(1, 1, opens_ns=ns([0, 4]), closes_ns=ns([1, 9]), reopens=np.array([False, True]),
                      ends_ns=ends_ms * MS)
        plan = plan_of(VllmParameters(async_scheduling=False), Linear(ONE_MS), num_gpu_blocks=10, block_size=16,
                       max_model_len=100)
        cluster = build(scripted([1], script), plan, Hooks(Recorder(NO_SINK, False, False)))
        cluster.run()
        assert cluster.source.used() == [(1, is_dry)]


def test_nobody_comes_after_the_end(run):
    requests = run(scripted([3, 3, 1, 1], loop(4, 2, ends_ns=3 * MS)))

    assert requests["status"].tolist() == [records.COMPLETED] * 2 + [records.NOT_SENT] * 2
    assert ms(requests, "arrival_ns") == [0, 0, None, None]


CHAIN = [(0, 1, "end", 5)]


def test_a_session_holds_its_slot_while_its_user_thinks(run):
    script = plays([2, 1], CHAIN, slots=1)

    expect(run(scripted([3, 2, 1], script)), [0, 8, 10], [3, 10, 11])


def test_or_another_takes_the_slot_meanwhile(run):
    script = plays([2, 1], CHAIN, slots=1, holds_play=False)

    expect(run(scripted([3, 2, 1], script)), [0, 8, 3], [3, 10, 4])


def test_what_is_ready_first_goes_first(run):
    # At 3 the slot is free: r2, ready at 0, goes before r1, ready at 2; both before r3, whose play begins at 2.5.
    script = plays([2, 1, 1], [(0, 1, "end", 0)], slots=1, holds_play=False, starts_ms=[0, 0, 2.5])

    expect(run(scripted([2, 1, 1, 1], script)), [0, 3, 2, 4], [2, 4, 3, 5])


def test_a_refused_request_ends_its_session(run):
    # Its prompt is longer than any text may be: it is refused at 0, and the next session has the slot at once.
    script = plays([2, 1], CHAIN, slots=1)
    requests = run(scripted([3, 2, 1], script, prompts=[20_000, 1, 1]))

    assert requests["status"].tolist() == [records.REJECTED, records.NOT_SENT, records.COMPLETED]
    assert ms(requests, "arrival_ns") == [0, None, 0]


def test_or_its_session_goes_on(run):
    script = plays([2, 1], CHAIN, slots=1, goes_on_after_rejection=True)
    requests = run(scripted([3, 2, 1], script, prompts=[20_000, 1, 1]))

    assert ms(requests, "arrival_ns") == [0, 5, 7]


def test_all_that_wait_for_what_failed_are_not_sent(run):
    # 0 -> 1 -> 3, 2 -> 3: 2 is independent of what failed.
    script = plays([4], [(0, 1, "end", 0), (1, 3, "end", 0), (2, 3, "end", 0)])
    requests = run(scripted([1, 1, 1, 1], script, prompts=[20_000, 1, 1, 1]))

    assert requests["status"].tolist() == [
        records.REJECTED, records.NOT_SENT, records.COMPLETED, records.NOT_SENT]


def test_a_graph_waits_for_ends_and_dispatches(run):
    # p0: 2 tokens; c0 0.5 ms after it came, 3 tokens; p1 1 ms after p0's and 2 ms after c0's end.
    script = plays([3], [(0, 1, "dispatch", 0.5), (0, 2, "end", 1), (1, 2, "end", 2)])

    expect(run(scripted([2, 3, 1], script)), [0, 0.5, 6], [2, 4, 7])


def test_lanes_take_plays_as_they_are_free_or_in_turns(run):
    dynamic = plays([1, 1, 1], slots=2)
    lanes = tuple(Group(np.array(mine), Slots(ns([0])), holds_play=True) for mine in ([0, 2], [1]))
    static = Script(lanes, np.zeros(3, np.int64), play_begins=np.arange(4))

    expect(run(scripted([3, 1, 2], static)), [0, 0, 3], [3, 1, 5])
    expect(run(scripted([3, 1, 2], dynamic)), [0, 0, 1], [3, 1, 3])


def test_not_before_counts_from_the_beginning_of_the_play(run):
    script = plays([2, 2], [(0, 1, "end", 1), (2, 3, "end", 1)], starts_ms=[0, 100], offset_ns=ns([0, 20, 0, 0]))

    assert ms(run(scripted([2, 1, 2, 1], script)), "arrival_ns") == [0, 20, 100, 103]


def test_idle_stretches_of_a_play_are_cut(run):
    # 50 ms after the end, and not before 80 ms: each becomes 10 ms. The other play is none of its business.
    edges = [(0, 1, "end", 50), (1, 2, "end", 0), (3, 4, "end", 5)]
    script = plays([3, 2], edges, offset_ns=ns([0, 0, 80, 0, 0]), idle_cap_ns=10 * MS)

    assert ms(run(scripted([1, 1, 1, 1, 1], script)), "arrival_ns") == [0, 11, 22, 0, 6]


def test_stages_follow_each_other(run):
    # Two slots for three requests; 2 ms after the last has ended, two requests 1 ms apart; at once after the last of
    # these has come, one slot for the rest.
    groups = (Group(np.arange(3), Slots(ns([0, 0]))),
              Group(np.arange(3, 5), after=0, interval_ns=2 * MS),
              Group(np.arange(5, 7), Slots(ns([0])), after=1, after_dispatch=True))
    script = Script(groups, ns([0, 0, 0, 0, 1, 0, 0]))

    expect(run(scripted([2, 1, 1, 5, 1, 1, 1], script)), [0, 0, 1, 4, 5, 5, 6], [2, 1, 2, 9, 6, 6, 7])


def test_clients_give_up_so_long_after_they_came(run):
    script = loop(3, 1, timeout_ns=np.array([ns(2.5), -2**63, ns(2.5)]))
    requests = run(scripted([10, 4, 1], script))

    assert requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED, records.COMPLETED]
    assert ms(requests, "arrival_ns") == [0, 3, 7]          # what runs leaves with the iteration in progress


def test_or_when_all_are_cancelled(run):
    requests = run(scripted([3, 10, 10], loop(3, 2, cancel_ns=5 * MS, ends_ns=4 * MS)))

    assert requests["status"].tolist() == [records.COMPLETED, records.TIMED_OUT, records.TIMED_OUT]


def test_the_client_reacts_to_what_it_sees(run):
    # Each token reaches it 0.5 ms after the iteration; the engine's own clock knows nothing of that.
    from simulator.domain.host import HostParameters
    host = HostParameters(output_token_us=500)

    assert ms(run(scripted([2, 1], loop(2, 1)), host=host), "arrival_ns") == [0, 2.5]
    assert ms(run(scripted([2, 1], loop(2, 1, from_engine=True)), host=host), "arrival_ns") == [0, 2]


@pytest.mark.parametrize("is_async", [False, True])
def test_all_replicas_end_what_ends_before_any_begins(run, is_async):
    # Round robin over two; r1 ends at 2 on the second, r2 comes then and goes to the first, whose iteration ends at 2,
    # too: it is in the one that begins there. With async scheduling that one has been scheduled long ago.
    parameters = VllmParameters(async_scheduling=is_async)
    requests = run(scripted([5, 2, 1], loop(3, 2)), parameters, replicas=2)

    expect(requests, [0, 0, 2], [5, 2, 4 if is_async else 3])
