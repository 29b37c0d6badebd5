"""Gateway, causes, fairness, shares and fitness, against runs worked by hand (fakes.py)."""
import json

import numpy as np
import pytest

from results.fakes import MS, bounds_of, replicas_of, requests_of, small_run, workload_of
from simulator.config.experiment import Fitness
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run
from simulator.results import cluster, tables
from simulator.results.cluster import PoolFacts
from simulator.results.decisions import DecisionTotals
from simulator.results.fitness import fitness
from simulator.results.journeys import journeys_of
from simulator.results.summary import json_text, summary_of
from simulator.results.uptime import incidents_of

ADMISSION, QUEUE_FULL, NO_REPLICA = map(records.CAUSE_NAMES.index, ("admission", "queue_full", "no_replica"))


def journeys_table(*rows):
    """Return journeys; each row (admitted, dispatched, downtime in ms, None for never; retries, migrations, cause)."""
    table = np.zeros(len(rows), records.JOURNEY)
    for record, (admitted_ms, dispatched_ms, downtime_ms, *others) in zip(table, rows, strict=True):
        for name, time_ms in (("admitted_ns", admitted_ms), ("dispatched_ns", dispatched_ms)):
            record[name] = records.NEVER_NS if time_ms is None else time_ms * MS
        record["downtime_ns"] = downtime_ms * MS
        record["retries"], record["migrations"], record["cause"] = others
    return table


def run_of(rows, replicas, clock_ms, journeys=None, **labels):
    return Run(workload_of(requests_of(rows), **labels), True, clock_ms * MS, replicas_of(*replicas), WeightedSamples(),
               journeys)


def gated_run():
    """The small run (fakes.py) behind a gateway: request 4 was refused by the admission policy, 2 moved and retried."""
    run = small_run()
    run.journeys = journeys_table((0, 1, 0, 0, 0, 0), (5, 5, 0, 0, 0, 0), (10, 10, 7, 1, 2, 0), (18, 20, 0, 0, 0, 0),
                                  (None, None, 0, 0, 0, ADMISSION), (None, None, 0, 0, 0, 0))
    return run


def test_a_plain_run_of_one_replica_says_nothing_of_a_gateway():
    run = small_run()

    summary = summary_of(run, "small", 42, bounds_of())

    assert journeys_of(run) is None
    assert "gateway_ms" not in summary
    assert "utilisation" not in summary["replicas"][0]
    assert summary["by_cause"] == {"rejected": {"engine": 1}}
    assert tables.request_dtype(run.workload, None).names[-1] == "grammar"


def test_gateway_time_runs_from_admission_to_dispatch():
    summary = summary_of(gated_run(), "small", 42, bounds_of())

    # 1 - 0, 5 - 5, 20 - 18; request 2 was sent twice
    assert (summary["gateway_ms"]["min"], summary["gateway_ms"]["p50"], summary["gateway_ms"]["max"]) == (0.0, 1.0, 2.0)
    assert summary["downtime_ms"]["mean"] == 7.0
    assert (summary["retries"], summary["migrations"]) == (1, 2)
    assert summary["by_cause"] == {"rejected": {"admission": 1}}


def test_requests_are_counted_by_what_became_of_them_and_why():
    ends = (records.REJECTED, records.REJECTED, records.REJECTED, records.DROPPED, records.TIMED_OUT, records.COMPLETED)
    requests = requests_of([(0, 0, 0, 0, 0, 1, 1, status) for status in ends])
    journeys = journeys_table(*((0, 0, 0, 0, 0, cause) for cause in (ADMISSION, QUEUE_FULL, ADMISSION, 0, 0, 0)))

    assert cluster.by_cause(requests, journeys) == {
        "rejected": {"admission": 2, "queue_full": 1}, "dropped": {"engine": 1}, "timed_out": {"deadline": 1}}


def test_without_a_gateway_requests_of_several_replicas_are_dispatched_when_they_come():
    rows = [(0, 1, 2, 3, 4, 1, 1, records.COMPLETED), (5, None, None, None, None, 1, 1, records.REJECTED),
            (6, 6, None, None, None, 1, 1, records.REJECTED), (9, None, None, None, None, 1, 1, records.PENDING)]
    journeys = journeys_of(run_of(rows, ({}, {}), 10))

    # the third was refused by its replica, as too long for instance
    assert journeys["admitted_ns"].tolist() == journeys["dispatched_ns"].tolist() == [0, -1, 6 * MS, -1]
    assert journeys["cause"].tolist() == [0, NO_REPLICA, 0, 0]


def test_request_rows_show_the_journeys():
    run = gated_run()
    dtype = tables.request_dtype(run.workload, run.journeys)

    rows = tables.request_rows(run.workload, dtype, run.journeys, slice(2, 5))

    assert dtype.names[-6:] == ("admitted_ns", "dispatched_ns", "downtime_ns", "retries", "migrations", "cause")
    assert [tuple(row)[-6:] for row in rows] == [
        (10 * MS, 10 * MS, 7 * MS, 1, 2, 0), (18 * MS, 20 * MS, 0, 0, 0, 0), (-1, -1, 0, 0, 0, ADMISSION)]


@pytest.mark.parametrize(("outputs", "index"), [
    ([600, 1200], 0.9),             # 1800^2 / (2 x 1.8e6), as BLIS prints for its golden case 21
    ([7, 7], 1.0), ([5, 0], 0.5),
    ([0, 0], 1.0),
])
def test_fairness_is_jains_index_of_output_tokens_by_tenant(outputs, index):
    rows = [(0, 0, 0, 0, 1, 1, tokens, records.COMPLETED) for tokens in outputs]
    # not completed, of nobody, of a tenant of whom none came: none counts
    rows += [(0, 0, 0, 0, None, 1, 99, records.RUNNING), (0, 0, 0, 0, 1, 1, 99, records.COMPLETED),
             (9, None, None, None, None, 1, 99, records.PENDING)]

    assert cluster.fairness(run_of(rows, ({},), 10, tenant=["a", "b", "a", None, "c"]), None) == pytest.approx(index)


def test_without_tenants_there_is_no_fairness():
    assert cluster.fairness(small_run(), None) is None


def test_replicas_are_described_by_their_share_of_the_time():
    # On replica 0, request 0 waits 0 to 4, request 1 2 to 6, request 2 4 to 5 (comes as 0 leaves), request 3 9 to the
    # end, 10; request 4, on replica 1, gives up at its deadline after 3 ms; request 5 was dropped at once.
    rows = [(0, 0, 4, 5, 6, 1, 1, records.COMPLETED), (2, 2, 6, 7, 8, 1, 1, records.COMPLETED),
            (4, 4, 5, 6, 7, 1, 1, records.COMPLETED), (9, 9, None, None, None, 1, 0, records.WAITING),
            (1, 1, None, None, None, 1, 0, records.TIMED_OUT), (1, 1, None, None, None, 1, 0, records.DROPPED)]
    run = run_of(rows, ({"busy_ns": 5 * MS, "requests": 4, "completed": 3}, {"busy_ns": 0, "requests": 2}), 10)
    run.workload.requests["replica"] = [0, 0, 0, 0, 1, 1]
    run.workload.demands["deadline_ns"][4] = 4 * MS

    one, other = cluster.replica_shares(run, (PoolFacts("a", 1, 3.6e6), PoolFacts("b", 1, 0.0)))

    # 4 + 4 + 1 + 1 request ms over 10 ms; 3.6e6 an hour are 1000 a second
    assert one == {"up_s": 0.01, "utilisation": 0.5, "mean_waiting": 1.0, "peak_waiting": 2,
                   "pool": "a", "cost": pytest.approx(10.0)}
    assert other == {"up_s": 0.01, "utilisation": 0.0, "mean_waiting": pytest.approx(0.3), "peak_waiting": 1,
                     "pool": "b", "cost": 0.0}


def test_pools_on_one_type_of_node_add_up_their_cost():
    pools = PoolFacts("a", 2, 1.0, "dgx-h100"), PoolFacts("b", 1, 3.0, "dgx-h100"), PoolFacts("c", 4, 0.5, "l4")
    parts = {"a": {"cost": 10.0}, "b": {"cost": 5.0}, "c": {"cost": 2.0}}

    assert cluster.cost_by_node(pools, parts) == {
        "dgx-h100": {"cost_per_hour": 5.0, "cost": 15.0}, "l4": {"cost_per_hour": 2.0, "cost": 2.0}}


def test_pools_add_up_their_replicas():
    run = run_of([], ({"busy_ns": 5 * MS, "requests": 4, "completed": 3}, {"busy_ns": 3 * MS, "requests": 2}, {}), 10)

    parts = cluster.by_pool(run, (PoolFacts("a", 2, 1.8e6), PoolFacts("b", 1, 7.2e6)))

    assert parts["a"] == {"replicas": 2, "requests": 6, "completed": 3, "up_s": 0.02, "utilisation": 0.4,
                          "cost_per_hour": 1.8e6, "cost": pytest.approx(10.0)}
    assert (parts["b"]["utilisation"], parts["b"]["cost"]) == (0.0, pytest.approx(20.0))


def test_a_replica_is_never_busier_than_all_the_time():
    # It was off after 4 ms, while an iteration that nobody waited for went on for 1 ms.
    run = run_of([], ({"busy_ns": 5 * MS}, {}), 10)
    run.lifecycle = lifecycle_of((0, 0, "up", "start"), (0, 1, "up", "start"), (4, 0, "off", "scaling"))

    zero, one = cluster.replica_shares(run, (PoolFacts("a", 2, 0.0),))

    assert (zero["utilisation"], one["utilisation"]) == (1.0, 0.0)


def lifecycle_of(*rows):
    """Return changes of stage; each row (time in ms, replica, stage, cause)."""
    table = np.zeros(len(rows), records.LIFECYCLE)
    for record, (time_ms, replica, stage, cause) in zip(table, rows, strict=True):
        record["time_ns"], record["replica"] = time_ms * MS, replica
        record["state"], record["cause"] = records.STAGE_NAMES.index(stage), records.LIFECYCLE_CAUSES.index(cause)
    return table


def test_replicas_that_come_and_go_count_while_they_are_there():
    # 0 serves 0 to 4 and, drained, to 6. 1 starts at 2, serves from 5 to 7, is down to 9, serves to the end, 10.
    run = run_of([], ({"busy_ns": 3 * MS}, {"busy_ns": 3 * MS}, {}), 10)
    run.lifecycle = lifecycle_of(
        (0, 0, "up", "start"), (0, 1, "off", "start"), (0, 2, "off", "start"), (2, 1, "provisioning", "scaling"),
        (4, 0, "draining", "scaling"), (5, 1, "up", "scaling"), (6, 0, "off", "scaling"), (7, 1, "down", "failure"),
        (9, 1, "up", "recovery"))

    zero, one, two = cluster.replica_shares(run, (PoolFacts("a", 3, 3.6e6),))       # 1 a ms

    assert [share["up_s"] for share in (zero, one, two)] == [0.006, 0.003, 0.0]
    assert [share["utilisation"] for share in (zero, one, two)] == [0.5, 1.0, 0.0]
    assert [share["cost"] for share in (zero, one, two)] == pytest.approx([6.0, 8.0, 0.0])
    pool = cluster.by_pool(run, (PoolFacts("a", 3, 3.6e6),))["a"]
    assert (pool["up_s"], pool["cost"], pool["utilisation"]) == (0.009, pytest.approx(14.0), pytest.approx(6 / 9))


def test_changes_of_stage_are_incidents():
    run = small_run()
    run.incidents = [(3 * MS, -1, "migration", "request 7 to replica 1")]
    run.lifecycle = lifecycle_of((0, 0, "up", "start"), (2, 0, "down", "failure"), (9, 0, "up", "recovery"))

    assert incidents_of(run) == [(2 * MS, 0, "failure", "down"), (3 * MS, -1, "migration", "request 7 to replica 1"),
                                 (9 * MS, 0, "recovery", "up")]


def test_a_cluster_that_never_ran_has_no_infinite_shares():
    run = run_of([], ({}, {}), 0, journeys_table())

    text = json_text(summary_of(run, "empty", 0, bounds_of(), (PoolFacts("a", 2, 1.0),), Fitness(p50_ttft=1.0)))

    found = json.loads(text)
    assert [replica["utilisation"] for replica in found["replicas"]] == [0.0, 0.0]
    assert (found["gateway_ms"]["mean"], found["fitness"]["total"]) == (None, 0.0)


def test_fitness_is_the_weighted_sum_of_its_parts():
    summary = {"ttft_ms": {"p99": 9.0, "p50": 4.0}, "e2el_ms": {"mean": 99.0}, "request_throughput": 25.0,
               "output_throughput": 30_000.0}

    found = fitness(summary, Fitness(p99_ttft=0.5, mean_e2e=2.0, throughput=3.0, tokens_per_sec=1.0))

    # 0.5 / (1 + 9) + 2 / (1 + 99) + 3 x 25 / 125 + 30000 / 40000
    assert found["total"] == pytest.approx(0.05 + 0.02 + 0.6 + 0.75)
    assert found["parts"]["throughput"] == {"weight": 3.0, "value": 0.2}
    assert set(found["parts"]) == {"p99_ttft", "mean_e2e", "throughput", "tokens_per_sec"}


def test_fitness_of_the_recorded_case_of_blis():
    # goldens/blis/21_run_spec_constant_fitness, stdout: --fitness-weights throughput:0.5,p99_ttft:0.3,mean_e2e:0.2
    summary = {"ttft_ms": {"p99": 12.881509999999999}, "e2el_ms": {"mean": 163.18066666666667},
               "request_throughput": 42.643862624218016}

    found = fitness(summary, Fitness(throughput=0.5, p99_ttft=0.3, mean_e2e=0.2))

    assert {key: round(part["value"], 6) for key, part in found["parts"].items()} == {
        "p99_ttft": 0.072038, "mean_e2e": 0.006091, "throughput": 0.298953}
    assert round(found["total"], 6) == 0.172306


def test_decisions_are_added_up_however_they_come():
    rows = np.zeros(5, records.DECISION)
    rows["replica"] = [2, 0, -1, 2, 1]
    rows["regret"] = [0.5, 0.0, 0.0, 2.0, 1.5]
    totals = DecisionTotals()
    for part in (rows[:2], rows[2:2], rows[2:]):
        totals.append(part)

    assert totals.summary(4) == {"total": 5, "routed": 4, "refused": 1, "unique_targets": 3, "targets": [1, 1, 2, 0],
                                 "mean_regret": 1.0, "max_regret": 2.0}
    assert DecisionTotals().summary(1)["mean_regret"] is None
