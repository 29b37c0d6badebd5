"""ThunderAgent: which programs are admitted, paused and resumed, worked by hand."""
import random

import pytest

from simulator.admission.programs.base import Go
from simulator.admission.programs.thunderagent import ThunderAgent, ThunderAgentParameters

S = 10**9
A, B, C, D = range(4)


def policy_of(*capacities, **keys):
    policy = ThunderAgent(ThunderAgentParameters(**keys))
    policy.set_capacities(dict(enumerate(capacities)))
    return policy


def acting(policy, program, tokens):
    """Have a program run a tool after a turn of that many tokens."""
    assert policy.begin(program, tokens, 0)
    policy.end_turn(program, tokens, 0)


def test_the_smallest_program_with_a_tool_is_paused_until_there_is_room_with_hysteresis():
    policy = policy_of(10_000)              # the worked example of section 4.1
    acting(policy, A, 3500)
    acting(policy, B, 3000)
    assert policy.begin(D, 2500, 0) == Go(D, 0)
    policy.observe(A, 4000)
    assert policy.used == {0: 9800}         # above 9,500
    assert policy.tick(5 * S) == []
    assert (list(policy.paused), policy.used) == ([B], {0: 6700})       # B alone: 6,700 is below 8,000
    policy.tick(10 * S)
    assert list(policy.paused) == [B]       # 8,500 - 6,700 < 3,100
    policy.end_program(A)
    assert policy.begin(B, 3000, 11 * S) is None
    assert policy.tick(15 * S) == [Go(B, 0, priority_jump=1, was_paused=True)]
    assert policy.used == {0: 5700}
    assert policy.counts == {"pauses": 1, "resumes": 1, "demotions": 0, "forced_resumes": 0}


def test_where_no_tool_runs_all_programs_are_paused_at_the_end_of_their_turns():
    policy = policy_of(10_000)
    for program, tokens in ((A, 4000), (B, 4000)):
        policy.begin(program, tokens, 0)
    policy.observe(A, 6000)
    policy.tick(5 * S)
    assert policy.begin(C, 100, 6 * S) is None and list(policy.paused) == [C]       # 10,200 of 10,000
    policy.end_turn(A, 6000, 7 * S)
    policy.end_turn(B, 4000, 7 * S)
    assert list(policy.paused) == [C, A, B]
    assert policy.freed == [(A, True), (B, True)]
    assert policy.tick(10 * S) == [Go(C, 0, 1, was_paused=True)]        # of 8,500: C takes 200, B 4,100
    assert list(policy.paused) == [A]


def test_a_new_program_waits_behind_others_and_goes_where_least_is_used():
    policy = policy_of(1000, 2000)
    assert policy.begin(A, 500, 0) == Go(A, 0)
    assert policy.begin(B, 800, 0) == Go(B, 1)
    assert policy.begin(C, 1500, 0) is None         # 600 and 900 used
    assert policy.begin(D, 100, 0) is None          # it would fit, but C waits
    policy.end_program(B)
    assert [go[:2] for go in policy.tick(5 * S)] == [(C, 1), (D, 0)]    # 250 and 1,700 are free


def test_turns_of_a_nearly_full_replica_are_less_urgent_for_a_while():
    policy = policy_of(10_000)
    acting(policy, A, 8000)
    policy.tick(5 * S)
    assert policy.begin(A, 8000, 12 * S) == Go(A, 0, -2, is_demoted=True)       # for 7.5 s
    policy.end_turn(A, 8000, 12 * S)
    assert policy.begin(A, 8000, 12 * S + S // 2) == Go(A, 0)
    assert policy.counts["demotions"] == 1


def test_a_turn_that_waits_too_long_goes_where_idle_programs_count_least():
    policy = policy_of(10_000, 10_000)
    acting(policy, A, 9000)                         # at 0, a tool runs since 0 s
    policy.begin(B, 8000, 0)                        # at 1
    assert policy.begin(C, 5000, 0) is None
    assert policy.expire(C, 1800 * S) == Go(C, 0, 1, was_paused=True)       # A counts as its 100 tokens, B as 8,100
    assert policy.used == {0: 14_200, 1: 8100} and not policy.paused
    assert policy.counts["forced_resumes"] == 1


def test_a_turn_that_is_given_up_leaves_no_trace():
    policy = policy_of(1000)
    acting(policy, A, 800)
    policy.observe(A, 960)
    policy.tick(5 * S)
    assert policy.begin(A, 990, 6 * S) is None and policy.begin(B, 500, 6 * S) is None
    policy.cancel(A, 7 * S)
    policy.cancel(B, 7 * S)
    known = policy.programs[A]
    assert (known.tokens, known.steps, known.is_acting, list(policy.paused)) == (960, 1, True, [A])
    assert B not in policy.programs


def test_a_program_of_a_replica_that_is_gone_is_placed_again_or_routed():
    policy = policy_of(1000, 1000)
    acting(policy, A, 500)
    acting(policy, B, 600)
    policy.set_capacities({1: 1000})
    assert policy.used == {1: 700} and policy.looks(A) and not policy.looks(B)
    assert policy.begin(A, 200, 1 * S) == Go(A, 1)
    policy.set_capacities({0: 500})
    assert policy.begin(B, 600, 2 * S) == Go(B)     # known, and nowhere is room for it
    policy.check()


@pytest.mark.parametrize("seed", range(8))
def test_random_calls_keep_the_books(seed):
    rng = random.Random(seed)
    policy = policy_of(3000, 3000, buffer_per_program=rng.choice([0, 100]), acting_token_weight=rng.random())
    waiting, running, now_ns = set(), set(), 0
    for _ in range(400):
        now_ns += rng.randrange(3 * S)
        program, tokens = rng.randrange(12), rng.randrange(1500)
        gone = []
        match rng.randrange(6):
            case 0 | 1 if program not in waiting | running:
                go = policy.begin(program, tokens, now_ns)
                waiting.add(program)
                gone = [go] if go else []
            case 2 if program in running:
                running.remove(program)
                policy.end_turn(program, tokens, now_ns)
            case 3 if program in waiting:
                gone = [policy.expire(program, now_ns)] if rng.random() < 0.5 else policy.end_program(program)
            case 4:
                policy.set_capacities({i: 3000 for i in range(2) if rng.random() < 0.8})
            case 5:
                gone = policy.tick(now_ns)
        assert {go.program for go in gone} <= waiting
        waiting -= {go.program for go in gone}
        running |= {go.program for go in gone} & policy.programs.keys()
        policy.check()
        assert waiting <= policy.paused.keys() and not running & policy.paused.keys()


@pytest.mark.parametrize("keys", [{"pause_target": 0.9, "pause_threshold": 0.8}, {"resume_hysteresis": 0.96}])
def test_thresholds_in_a_wrong_order_are_refused(keys):
    with pytest.raises(ValueError, match="expected at most pause_threshold"):
        ThunderAgentParameters(**keys)
