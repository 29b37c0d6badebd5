"""What autoscalers decide, by what they see."""
import numpy as np
import pytest

from simulator.domain import records
from simulator.scaling.base import Autoscaler, Observation, Variant, in_proportion, spread
from simulator.scaling.blis import Blis, BlisParameters
from simulator.scaling.queue import Queue, QueueParameters
from simulator.scaling.slo_attainment import SloAttainment, SloAttainmentParameters
from simulator.scaling.utilisation import Utilisation, UtilisationParameters


def variant(index=0, used_blocks=(), *, waiting=0, in_flight=0, cost=1.0, starting=0, room=8):
    """Return a pool of replicas of 100 blocks of 16 tokens, so many in use in each, and at most 10 running requests."""
    states = np.zeros(len(used_blocks), records.REPLICA_STATE)
    states["used_blocks"], states["num_blocks"], states["block_size"] = used_blocks, 100, 16
    states["max_running"], states["waiting"] = 10, waiting
    accounts = np.zeros(len(used_blocks), records.REPLICA_ACCOUNT)
    accounts["in_flight"] = in_flight
    return Variant(index, f"pool {index}", cost, 1600, starting, room, max(len(used_blocks) - 1, 0), states, accounts)


def observed(*variants, queued=0, finished=()):
    return Observation(0, variants, queued, np.array(list(finished), records.REQUEST))


def test_utilisation_follows_the_formula_of_kubernetes():
    policy = Utilisation(UtilisationParameters(target=0.5))
    # means 0.9, 0.54 (within a tenth of the target) and 0.2: ceil(2 * 1.8) = 4, nothing, ceil(4 * 0.4) = 2
    assert policy.decide(observed(variant(0, (90, 90)))) == {0: 2}
    assert policy.decide(observed(variant(0, (54, 54)))) == {}
    assert policy.decide(observed(variant(0, (20, 20, 20, 20)))) == {0: -2}


def test_utilisation_may_count_requests():
    policy = Utilisation(UtilisationParameters(metric="in_flight", target=1.0))
    assert policy.decide(observed(variant(0, (0,), in_flight=30))) == {0: 2}        # 30 of 10


def test_replicas_that_start_count_as_there():
    assert in_proportion(observed(variant(0, (90, 90), starting=1)), 1.8, 0.1) == {0: 1}
    assert in_proportion(observed(variant(0, (90, 90), starting=3)), 1.8, 0.1) == {}


def test_queue_counts_what_waits_anywhere():
    policy = Queue(QueueParameters(target_waiting=5.0))
    # 8 + 8 at the replicas and 14 at the gateway, 15 a replica, three times the target: 6 in all
    assert policy.decide(observed(variant(0, (0, 0), waiting=8), queued=14)) == {0: 4}
    assert policy.decide(observed(variant(0, (0, 0)))) == {0: -1}                   # one must stay


def test_where_nobody_serves_the_first_is_called_for_by_who_waits():
    policy = Queue(QueueParameters())
    assert policy.decide(observed(variant(0), queued=1)) == {0: 1}
    assert policy.decide(observed(variant(0, starting=1), queued=1)) == {}
    assert policy.decide(observed(variant(0))) == {}


def test_the_cheapest_grow_first_and_the_dearest_shrink_first():
    pools = variant(0, (0, 0), cost=3.0), variant(1, (0, 0, 0), cost=1.0, room=2)
    assert spread(observed(*pools), 3) == {1: 2, 0: 1}
    assert spread(observed(*pools), -2) == {0: -1, 1: -1}


def request(ttft_ms, outputs=11, itl_ms=10.0, status=records.COMPLETED):
    last_ns = round((ttft_ms + (outputs - 1) * itl_ms) * 1e6)
    return (0, 0, 0, round(ttft_ms * 1e6), last_ns, 10, outputs, 0, 0, 0, status, [0, 0, 0])


def test_attainment_goes_a_step_at_a_time():
    policy = SloAttainment(SloAttainmentParameters(ttft_ms=100.0, tpot_ms=20.0, target=0.5, comfortable=1.0))
    good, late, slow = request(100), request(101), request(50, itl_ms=21.0)
    dropped = request(50, status=records.DROPPED)
    two = variant(0, (0, 0), in_flight=5)
    assert policy.decide(observed(two, finished=[good, late, slow])) == {0: 1}
    assert policy.decide(observed(two, finished=[good, dropped, dropped])) == {0: 1}
    assert policy.decide(observed(two, finished=[good, late])) == {}
    assert policy.decide(observed(two, finished=[good])) == {0: -1}                 # 10 in flight, the other takes 10
    assert policy.decide(observed(variant(0, (0, 0), in_flight=6), finished=[good])) == {}
    assert policy.decide(observed(two)) == {}                                       # in flight, for how long?
    assert policy.decide(observed(variant(0, (0, 0), starting=1), finished=[late])) == {}


def at(time_s, *variants, queued=0):
    seen = observed(*variants, queued=queued)
    return Observation(round(time_s * 1e9), seen.variants, queued, seen.finished)


def test_with_no_request_left_replicas_go_one_by_one():
    policy = SloAttainment(SloAttainmentParameters(ttft_ms=100.0))

    assert policy.decide(observed(variant(0, (0, 0, 0)))) == {0: -1}
    assert policy.decide(observed(variant(0, (0, 0), starting=1))) == {0: -1}
    assert policy.decide(observed(variant(0, ()), queued=1)) == {0: 1}
    assert policy.decide(observed(variant(0, (), starting=1), queued=1)) == {}


def test_who_is_there_for_longer_than_a_bound_has_missed_it():
    def policy(**bounds):
        return SloAttainment(SloAttainmentParameters(**bounds))

    answers, busy = policy(e2el_ms=15_000.0), variant(0, (0, 0), in_flight=3)
    assert [answers.decide(at(time_s, busy)) for time_s in (10, 20, 30)] == [{}, {}, {0: 1}]
    # Of 8 requests 2 wait at 20 s, as many as came since 0 s; at 30 s 4 do, of which 2 were there at 10 s.
    first, tokens = policy(ttft_ms=15_000.0), policy(tpot_ms=1.0)
    waits = [variant(0, (0, 0), in_flight=count, waiting=waiting)
             for count, waiting in ((3, 1), (3, 1), (4, 1), (4, 2))]
    assert [first.decide(at(10 * i, each)) for i, each in enumerate(waits)] == [{}, {}, {}, {0: 1}]
    assert [tokens.decide(at(10 * i, each)) for i, each in enumerate(waits)] == [{}] * 4


def test_attainment_needs_a_bound():
    with pytest.raises(ValueError, match="give a bound"):
        SloAttainmentParameters()


def test_blis_adds_what_demand_lacks():
    policy = Blis(BlisParameters(scale_up_threshold=0.5, scale_down_boundary=0.2, avg_input_tokens=100))
    # Supply 0.8 * 1600 = 1280 each. Demand 50 blocks = 800 and 10 waiting = 1000: 1800 / 0.5 - 1280 = 2320, two more;
    # one that starts gives 1280 of that, so one more.
    assert policy.decide(observed(variant(0, (50,), waiting=10))) == {0: 2}
    assert policy.decide(observed(variant(0, (50,), waiting=10, starting=1))) == {0: 1}
    assert policy.decide(observed(variant(0, (50,), waiting=10), variant(1, cost=0.5))) == {1: 2}


def test_blis_takes_away_what_demand_would_not_miss():
    policy = Blis(BlisParameters(scale_up_threshold=0.5, scale_down_boundary=0.2))
    # Demand 10 blocks = 160, needs 160 / 0.2 = 800. Three: 3840 - 800 = 3040 spare, two of them; two: 1760 spare, and
    # 1280 without the dearest, which is enough: one. One alone stays.
    assert policy.decide(observed(variant(0, (10, 0, 0)))) == {0: -2}
    assert policy.decide(observed(variant(0, (10, 0)))) == {0: -1}
    assert policy.decide(observed(variant(0, (10,)))) == {}
    # 20 blocks need 1600: one could not bear them alone.
    assert policy.decide(observed(variant(0, (20, 0)))) == {}


def test_a_policy_must_decide():
    with pytest.raises(NotImplementedError, match="must override decide"):
        Autoscaler(None).decide(observed(variant(0, (0,))))
