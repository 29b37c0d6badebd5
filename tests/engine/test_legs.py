"""The legs of requests: each stay at a replica, by timelines that tests of failures and migration work out by hand."""
from simulator.domain import records
from simulator.domain.failures import Failure
from simulator.engine.operations.move_plan import MovePlan
from support import migration, upkeep
from support.scenario import load
from support.workloads import plain_workload

MS = 1_000_000
PRICES = {"base_us": 5000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}
REQUEST = {"arrival": 0.0, "prompt": [["uniq", 10]], "output_len": 10}


def stopped_at_22_5_ms(num_requests, **failure):
    """Serve requests that come at 0 by two replicas with iterations of 5 ms, the first of which stops."""
    requests = [REQUEST | {"id": str(i)} for i in range(num_requests)]
    return upkeep.run(load({"options": {}, "prices": PRICES, "requests": requests, "host": {}}), replicas=2,
                      failures=[Failure(kind="stop", at_s=0.0225, which=0, **failure)])


def stays(legs):
    """Return (request, replica, sent, enqueued, scheduled, ended in ms, how) of each leg."""
    return [(leg["request"], leg["replica"],
             *(leg[name] / MS for name in ("sent_ns", "enqueued_ns", "scheduled_ns", "ended_ns")),
             records.LEG_ENDS[leg["how"]]) for leg in legs]


def test_a_request_that_moves_has_a_leg_at_each_replica():
    # The copy begins at 105 and goes on while it runs; it is handed over at 121 and has its last token at 501.
    served = migration.serve(plain_workload(0, 100, 50), [(105, 0, 1)], replicas=2, plan=MovePlan(
        ports=(migration.PORT,), last_stage_blocks=2, max_stages=5))

    assert stays(served.run.legs) == [(0, 0, 0, 0, 0, 121, "moved"), (0, 1, 105, 121, 121, 501, "completed")]


def test_a_request_that_is_retried_has_a_leg_for_each_time_it_was_sent():
    # Replica 0 stops at 22.5; replica 1 is within 20..25, and computes the prompt again from 25 on.
    outcome = stopped_at_22_5_ms(2)

    assert stays(outcome.legs) == [(0, 0, 0, 0, 0, 22.5, "retried"), (1, 1, 0, 0, 0, 50, "completed"),
                                   (0, 1, 22.5, 22.5, 25, 55, "completed")]
    assert outcome.legs["cached_tokens"].tolist() == [0, 0, 0]


def test_the_leg_of_a_lost_request_has_ended():
    outcome = stopped_at_22_5_ms(1, on_failure="lost")

    assert stays(outcome.legs) == [(0, 0, 0, 0, 0, 22.5, "ended")]
