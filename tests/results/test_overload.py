"""Offered and served load, the growth of the backlog and the verdict on it, of queues made by hand."""
import numpy as np
import pytest

from results.fakes import MS, replicas_of, workload_of
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.overload import Came, batch_means, in_system, load_of, rises

NUM_REQUESTS = 20_000


def arrivals(load, num_requests=NUM_REQUESTS, seed=1):
    """Return Poisson arrivals in ns for a server that takes 1 ms a request."""
    gaps = np.random.default_rng(seed).exponential(MS / load, num_requests)
    return np.cumsum(gaps).astype(np.int64)


def served(arrival_ns, service_ns=MS, horizon_ns=None):
    """Return the run of a server of its own for each request in turn; M/D/1 for Poisson arrivals."""
    number = np.arange(len(arrival_ns))
    # Lindley: request i ends at max over j <= i of (arrival j + (i - j + 1) service)
    ends_ns = np.maximum.accumulate(arrival_ns - number * service_ns) + (number + 1) * service_ns
    return run_of(arrival_ns, ends_ns, horizon_ns)


def run_of(arrival_ns, ends_ns, horizon_ns=None):
    requests = np.zeros(len(arrival_ns), records.REQUEST)
    requests["arrival_ns"] = requests["enqueued_ns"] = requests["scheduled_ns"] = arrival_ns
    requests["first_token_ns"] = requests["completed_ns"] = ends_ns
    requests["status"], requests["prompt_tokens"], requests["output_tokens"] = records.COMPLETED, 1, 1
    if horizon_ns is not None:
        requests["status"][ends_ns > horizon_ns] = records.WAITING
        requests["status"][arrival_ns > horizon_ns] = records.PENDING
        late = requests["status"] != records.COMPLETED
        requests["first_token_ns"][late] = requests["completed_ns"][late] = -1
    clock_ns = int(ends_ns.max(initial=0)) if horizon_ns is None else horizon_ns
    return Run(workload_of(requests), True, clock_ns, replicas_of({}), WeightedSamples())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("load", "verdict"), [(0.3, "stable"), (0.8, "stable"), (1.2, "overloaded"),
                                               (3.0, "overloaded")])
@pytest.mark.parametrize("horizon_ns", [None, 6_000 * MS])
def test_a_server_is_overloaded_by_more_than_it_can_serve(load, verdict, horizon_ns, seed):
    found = load_of(served(arrivals(load, seed=seed), horizon_ns=horizon_ns))

    assert found["verdict"] == verdict
    assert found["offered_throughput"] == pytest.approx(1000 * load, rel=0.05)
    if load > 1:        # 1,000 a second are served, the others pile up
        assert found["in_system"]["growth_per_s"] == pytest.approx(1000 * (load - 1), rel=0.25)
        assert found["served_share"] == pytest.approx(1 / load, rel=0.05)
    else:
        assert found["served_share"] == pytest.approx(1.0, abs=0.02)


def test_a_load_close_to_one_makes_the_backlog_grow():
    # every 1 / 1.03 ms one comes: the backlog grows by 3 in 100, and 97 % are served meanwhile
    arrival_ns = np.arange(NUM_REQUESTS) * MS * 100 // 103

    found = load_of(served(arrival_ns))

    assert found["verdict"] == "growing"
    assert found["in_system"]["growth_per_s"] == pytest.approx(30, rel=0.01)


def test_long_requests_that_only_fill_the_system_are_stable():
    # Every 10 ms one comes and stays for 1 s with its first token after 10 ms: the first 100 fill the system.
    arrival_ns = 10 * MS * np.arange(200)
    run = run_of(arrival_ns, arrival_ns + 1000 * MS)
    run.workload.requests["first_token_ns"] = arrival_ns + 10 * MS

    found = load_of(run)

    assert found["in_system"]["peak"] == 99         # who leaves at an instant is gone for who comes at it
    assert (found["verdict"], found["offered_throughput"]) == ("stable", 100.0)


def test_a_burst_has_no_rate_and_only_drains():
    found = load_of(served(np.zeros(1000, np.int64)))

    assert (found["offered_throughput"], found["verdict"], found["served_share"]) == (None, "stable", None)
    assert found["in_system"] == {"mean": 499.5, "peak": 999, "growth_per_s": None}


def test_a_burst_that_takes_some_time_to_come_overloads():
    # 1,000 requests within 100 ms, of 1 ms each: offered 10 times what is served
    found = load_of(served(np.arange(1000) * MS // 10))

    assert found["verdict"] == "overloaded"
    assert found["served_share"] == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(("count", "verdict"), [
    (0, "too short to tell"), (1, "too short to tell"), (39, "too short to tell"), (40, "stable")])
@pytest.mark.parametrize("gap_ns", [100, 10 * MS])
def test_few_requests_tell_nothing(count, verdict, gap_ns):
    found = load_of(served(np.arange(count) * gap_ns))

    assert found["verdict"] == verdict
    assert (found["served_share"] is None) == (count < 40 or gap_ns == 100)


def test_few_requests_that_give_up_tell_enough():
    run = served(np.arange(10) * 10 * MS)
    run.workload.requests["status"][:5] = records.TIMED_OUT

    assert load_of(run)["verdict"] == "overloaded"


def test_those_that_are_turned_away_do_not_count_as_some_that_tell():
    run = served(np.arange(60) * 10 * MS)
    run.workload.requests["status"][:21] = records.REJECTED

    assert load_of(run)["verdict"] == "too short to tell"       # 39 were let in


def test_clients_that_give_up_hide_no_overload():
    # Half of the requests leave at their deadlines, so nothing piles up.
    run = served(arrivals(0.5))
    run.workload.requests["status"][::2] = records.TIMED_OUT
    run.workload.demands["deadline_ns"][::2] = run.workload.requests["completed_ns"][::2]

    assert load_of(run)["verdict"] == "overloaded"


@pytest.mark.parametrize(("cause", "verdict"), [("queue_full", "overloaded"), ("admission", "overloaded"),
                                                ("no_replica", "stable"), ("", "stable")])
def test_the_gateway_sheds_for_overload_but_refuses_for_other_reasons_too(cause, verdict):
    run = served(arrivals(0.5))
    run.workload.requests["status"][::10] = records.REJECTED
    journeys = np.zeros(NUM_REQUESTS, records.JOURNEY)
    journeys["cause"][::10] = records.CAUSE_NAMES.index(cause)

    assert load_of(run, journeys)["verdict"] == verdict


def test_who_comes_finds_those_that_have_not_left():
    # 0 from 0 to 4, 1 from 1 to 3, 2 is refused at 2, 3 comes at 3, 4 gives up at 5, 5 comes at 5
    run = served(np.array([0, 1, 2, 3, 4, 5]) * MS)
    requests = run.workload.requests
    requests["completed_ns"] = np.array([4, 3, 9, 9, 9, 9]) * MS
    requests["status"] = [records.COMPLETED, records.COMPLETED, records.REJECTED, records.COMPLETED, records.TIMED_OUT,
                          records.WAITING]
    run.workload.demands["deadline_ns"][4] = 5 * MS

    assert in_system(Came(run)).tolist() == [0, 1, 1, 1, 1]


def test_batch_means_leave_out_the_first_tenth():
    # 40 values in 20 batches of 2; the first two batches go
    assert batch_means(np.arange(40.0)).tolist() == [4.5 + 2 * i for i in range(18)]


def test_a_rise_is_significant_and_large():
    number = np.arange(18)
    assert rises(number.astype(float))
    assert not rises(np.ones(18))
    assert not rises(18.0 - number)
    # slope 1 for 18 batches rises by 18: below a fifth of a mean of 108.5, above that of 88.5
    assert not rises(100.0 + number)
    assert rises(80.0 + number)
    # a rise of 1.8 in a zigzag of 20: error of the slope sqrt(18 * 100 / 16 / 484.5) = 0.48
    assert not rises(0.1 * number + 10.0 * (-1.0) ** number)
