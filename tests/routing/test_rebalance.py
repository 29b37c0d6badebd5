"""The rescheduler that evens out KV blocks."""
from simulator.routing.base import RoutingContext
from simulator.routing.rescheduling.rebalance import Rebalance, RebalanceParameters
from simulator.signals.view import View
from support.workloads import plain_workload

NEWEST = ("NUM_REQ", "LCR", 1.0)


def plans(used_blocks, **parameters):
    view = View(len(used_blocks))
    view.state_array["num_blocks"] = 100
    view.state_array["used_blocks"] = used_blocks
    view.touch()
    context = RoutingContext(view, plain_workload(0, 1, 1), None)
    return view, Rebalance(RebalanceParameters(**parameters), context)


def test_the_newest_request_of_the_fullest_moves_to_the_emptiest():
    _, rescheduler = plans([50, 90, 20, 60])
    assert rescheduler.planned(0) == [(1, 2, 0, *NEWEST)]


def test_replicas_that_are_nearly_alike_are_left_alone():
    _, rescheduler = plans([50, 70, 50], least_difference=0.2)
    assert rescheduler.planned(0) == []


def test_shares_are_compared_not_blocks():
    view, rescheduler = plans([50, 50])
    view.state_array["num_blocks"] = [60, 1000]
    assert rescheduler.planned(0) == [(0, 1, 0, *NEWEST)]


def test_nothing_moves_to_or_from_replicas_that_are_closed():
    view, rescheduler = plans([90, 50, 0, 10])
    view.account_array["is_routable"] = [False, True, False, True]
    assert rescheduler.planned(0) == [(1, 3, 0, *NEWEST)]


def test_of_equally_full_replicas_the_first_gives():
    _, rescheduler = plans([90, 90, 10, 10], num_requests=3)
    assert rescheduler.planned(0) == [(0, 2, 0, "NUM_REQ", "LCR", 3.0)]
