"""What `kpa` and `apa` decide: worked numbers."""
from dataclasses import replace

import pytest

from scaling.test_policies import observed, variant
from simulator.scaling.apa import Apa, ApaParameters
from simulator.scaling.base import Sample
from simulator.scaling.kpa import Kpa, KpaParameters

S = 10**9


def kpa(**keys):
    return Kpa(KpaParameters(**keys))


def seen(replicas, *loads, now_s=60, step_s=2, queued=0, starting=0):
    """Return replicas and samples, the last of which is of now."""
    samples = tuple(Sample((now_s - step_s * (len(loads) - 1 - i)) * S, load) for i, load in enumerate(loads))
    return replace(observed(variant(0, (0,) * replicas, room=50, starting=starting), queued=queued), now_ns=now_s * S,
                   samples=samples)


def test_panic_follows_the_short_window():
    # Mean of 60 s 180, of 6 s 520: ceil(180 / 70) = 3, ceil(520 / 70) = 8; 8 / 3 >= 2.
    loads = [(30 * 180 - 3 * 520) / 27] * 27 + [520.0] * 3
    assert kpa().decide(seen(3, *loads)) == {0: 5}


def test_without_panic_the_long_window_counts():
    policy = kpa()
    policy.decide(seen(1, 70.0))                        # one replica: no panic at the begin
    assert policy.decide(seen(3, *[180.0] * 30, now_s=62)) == {}
    assert policy.decide(seen(3, *[60.0] * 30, now_s=64)) == {0: -2}
    assert policy.decide(seen(8, *[60.0] * 30, now_s=66)) == {0: -4}        # half of them at most


def test_panic_never_shrinks_and_ends_a_stable_window_after_its_cause():
    policy = kpa()
    policy.decide(seen(1, *[700.0] * 3, now_s=10))                          # 10 replicas, panic
    assert policy.decide(seen(10, *[10.0] * 30, now_s=40)) == {}
    assert policy.decide(seen(10, *[10.0] * 30, now_s=70)) == {}            # 60 s later: still
    assert policy.decide(seen(10, *[10.0] * 30, now_s=72)) == {0: -5}


def test_several_replicas_begin_in_panic():
    policy = kpa()
    assert policy.decide(seen(4, 0.0, now_s=2)) == {}
    assert policy.decide(seen(4, *[0.0] * 30, now_s=64)) == {0: -2}


def test_replicas_that_start_are_not_started_again():
    assert kpa().decide(seen(1, *[700.0] * 30, starting=6)) == {0: 3}


def test_growth_is_bounded_by_its_rate():
    assert kpa(max_scale_up_rate=2.0).decide(seen(3, *[700.0] * 30)) == {0: 3}


def test_aibrix_compares_the_windows():
    # 8 / 3 replicas, but 190 is less than twice 180: no panic, 3 for the long window.
    loads = [179.0] * 27 + [190.0] * 3
    assert kpa(panic_by="load").desired(seen(1, *loads), 180.0, 190.0) == 3
    assert kpa(panic_by="load").desired(seen(1, *loads), 180.0, 520.0) == 8


def test_the_last_replica_stays_for_the_grace():
    policy = kpa(zero_grace_s=30.0)
    last = replace(variant(0, (0,)), removable=1)

    def at(now_s):
        return policy.decide(replace(observed(last), now_ns=now_s * S, samples=(Sample(now_s * S, 0.0),)))
    assert [at(now_s) for now_s in (60, 62, 88, 90)] == [{}, {}, {}, {0: -1}]


def test_a_request_at_the_gateway_leads_from_zero():
    assert kpa().decide(seen(0, 1.0)) == {0: 1}
    assert kpa().decide(replace(seen(0), samples=())) == {}


def test_aibrix_steps_are_bounded():
    # 0.9 of 0.5: 1.8 x 4 = 7.2: 8, twice 4 at most; 3 x 4 = 12: 8. Down: 0.1 of 0.5: 0.2 x 8 = 1.6, half of 8 at least.
    policy = Apa(ApaParameters())
    assert [policy.desired(4, use) for use in (0.9, 1.5, 0.55, 0.5, 0.45)] == [8, 8, 4, 4, 4]
    assert [policy.desired(8, use) for use in (0.1, 0.3, 0.44)] == [4, 5, 8]
    assert policy.decide(observed(variant(0, (90, 90, 90, 90), room=9))) == {0: 4}
    assert policy.decide(observed(variant(0, (10,) * 8))) == {0: -4}


def test_apa_starts_the_first_for_a_request():
    policy = Apa(ApaParameters())
    assert policy.decide(observed(variant(0), queued=1)) == {0: 1}
    assert policy.decide(observed(variant(0, starting=1), queued=1)) == {}


@pytest.mark.parametrize("metric", ["waiting", "running", "in_flight"])
def test_apa_may_count_requests(metric):
    pool = variant(0, (0, 0), waiting=9, in_flight=9)
    pool.states["running"] = 9
    assert Apa(ApaParameters(metric=metric, target=5.0)).decide(observed(pool)) == {0: 2}
