"""Decisions of BLIS's gates, replayed from its event logs; what replicas do in between is taken from the log too."""
import csv
import gzip
import re

import pytest

from admission.gates import S, context_of, labelled_workload, made, queue_of
from simulator.domain.slo_classes import SloClass
from support.goldens import GOLDENS

US = 1000
EVENT = re.compile(
    r"\] req request_(?P<refused>\d+): admitted=(?:false|true reason=\\\"flow-control-queue-rejected)|"
    r"\] req request_(?P<admitted>\d+): admitted=true|"
    r"held \(saturation=(?P<held>[\d.]+), snapshots=\d+, queueLen=(?P<waiting>\d+)\)|"
    r"req request_(?P<routed>\d+) . instance instance_(?P<instance>\d+)|"
    r"Finished req: ID: request_(?P<left>\d+)|"
    r"TTL expiry: req request_(?P<expired>\d+)|"
    r"eviction: req request_(?P<recalled>\d+)")
TICK = re.compile(r"(?:at tick|\[tick) (\d+)")

FLOW = {    # case: keys of the queue, its detector, keys of that; BLIS's "fifo" goes by bands since v0.8
    "15_flow_utilization": ({"order": "priority"}, "utilisation", {}),
    "15c_flow_hol_rr_ttl": (
        {"order": "priority", "lowest_ceiling": 0.6, "fairness": "round_robin", "ttl_s": 0.3,
         "max_requests_per_band": 12}, "concurrency", {"max_concurrency": 5}),
    "15d_flow_inflight_evict": (
        {"order": "priority", "in_flight_eviction": True}, "concurrency", {"max_concurrency": 5}),
    "15e_flow_slo_deadline": ({"order": "slo_deadline"}, "concurrency", {"max_concurrency": 5}),
    "31_bb_15_flow": ({"order": "fifo", "dispatch": "departures"}, "utilisation", {}),
    "34_v071_std_flow_conc_prio": (
        {"order": "priority", "dispatch": "departures", "max_requests": 40, "shedding": "lowest"},
        "concurrency", {"max_concurrency": 5}),
}
LOST = {    # requests that expired, were refused (logged, not logged), recalled
    "15c_flow_hol_rr_ttl": (48, 47, 0, 0), "15d_flow_inflight_evict": (0, 0, 0, 6),
    "34_v071_std_flow_conc_prio": (0, 0, 66, 0),
}
TARGETS = [SloClass(name="critical", ttft_ms=50), SloClass(name="standard", ttft_ms=200),
           SloClass(name="batch", ttft_ms=900)]


def rows_of(case):
    if not (GOLDENS / "blis" / case).is_dir():
        pytest.skip(f"no recorded case {case} under {GOLDENS}")
    with open(GOLDENS / "blis" / case / "trace.csv", newline="") as file:
        return list(csv.DictReader(file))


def workload_of(rows):
    prompts, prefixes = [], {}
    for row in rows:
        group = row["prefix_group"]
        shared = prefixes.setdefault(group, int(row["prefix_length"])) if group else 0
        prompts.append(shared + int(row["input_tokens"]))
    return labelled_workload([row["slo_class"] or None for row in rows], [row["tenant_id"] or None for row in rows],
                             prompts)


def events_of(case):
    """Yield (time in ns, kind, the groups of EVENT) of the lines that concern a gate."""
    now_us = 0
    with gzip.open(GOLDENS / "blis" / case / "events.log.gz", "rt") as file:
        for line in file:
            if tick := TICK.search(line):
                now_us = int(tick[1])
            if event := EVENT.search(line):
                found = {name: value for name, value in event.groupdict().items() if value is not None}
                yield now_us * US, next(iter(found)), found


class Replay:
    """The queue of a case, told what its log says and asked whenever the log shows an answer."""

    def __init__(self, case):
        keys, self.detector, detector_keys = FLOW[case]
        self.context = context_of(workload_of(rows_of(case)), replicas=2, classes=TARGETS)
        if self.detector == "utilisation":  # replicas are not replayed: saturation is put in, in hundredths
            detector_keys = {"queue_depth_threshold": 100.0}
        self.queue = queue_of(self.context, self.detector, detector_keys, **keys)
        self.saturation = made("saturation", self.detector, self.context, **detector_keys)
        self.finished = {int(found["left"]) for _, kind, found in events_of(case) if kind == "left"}
        self.refused = set()
        self.where = {}
        self.counts = dict.fromkeys(EVENT.groupindex, 0)

    def in_flight(self, row, change):
        self.context.view.account_array["in_flight"][self.where[row]] += change

    def saturate(self, hundredths):
        if self.detector == "utilisation":
            self.context.view.state_array["waiting"] = hundredths

    def step(self, now_ns, kind, found):
        queue, row = self.queue, int(found[kind]) if kind not in ("held", "waiting") else None
        self.counts[kind] += 1
        match kind:
            case "admitted":    # BLIS v0.7.1 logs it before the queue is asked, and no refusal
                if not queue.offer_row(row, now_ns):
                    assert queue.tries_on_departure
                    self.refused.add(row)
            case "refused":
                assert not queue.offer_row(row, now_ns)
            case "held":
                self.saturate(round(float(found["held"]) * 100))
                assert f"{self.saturation.measure(now_ns):.2f}" == found["held"]
                assert (queue.next_row(now_ns), queue.recalled) == (-1, -1)
                assert len(queue) == int(found["waiting"])
            case "routed":
                self.saturate(0)
                assert queue.next_row(now_ns) == row
                self.where[row] = int(found["instance"])
                queue.note_sent(row, now_ns)
                self.in_flight(row, 1)
            case "left":
                queue.note_left(row, now_ns)
                self.in_flight(row, -1)
            case "expired":
                assert queue.expire_row(now_ns) == row
            case "recalled":
                assert queue.next_row(now_ns) == -1
                assert queue.recalled == row
                if row not in self.finished:    # BLIS recalls in vain who is on the way to its replica's queue
                    self.in_flight(row, -1)


@pytest.mark.parametrize("case", FLOW)
def test_recorded_queue_makes_the_same_choices(case):
    replay = Replay(case)

    for event in events_of(case):
        replay.step(*event)
        replay.queue.check()

    counts = replay.counts
    assert counts["routed"] + counts["expired"] + counts["refused"] + len(replay.refused) == 120
    assert len(replay.queue) == 0
    lost = counts["expired"], counts["refused"], len(replay.refused), counts["recalled"]
    assert lost == LOST.get(case, (0, 0, 0, 0))


@pytest.mark.parametrize("case", ["31_bb_12_token_bucket", "32_v071_12_token_bucket"])
def test_recorded_token_bucket_makes_the_same_choices(case):
    context = context_of(workload_of(rows_of(case)))
    bucket = made("admission", "token_bucket", context, capacity_tokens=1500, refill_tokens_per_s=30000)

    decisions = {True: 0, False: 0}
    for now_ns, kind, found in events_of(case):
        if kind in ("admitted", "refused"):
            assert bucket.lets_in(int(found[kind]), now_ns) == (kind == "admitted")
            decisions[kind == "admitted"] += 1

    assert decisions == {True: 44, False: 16}


def test_recorded_tier_shedding_makes_the_same_choices():
    case = "12c_tier_shed"
    context = context_of(workload_of(rows_of(case)), replicas=2)
    policy = made("admission", "tier_shed", context, max_load=12, min_priority=3)
    load = re.compile(r"load=(\d+)")

    decisions = {True: 0, False: 0}
    with gzip.open(GOLDENS / "blis" / case / "events.log.gz", "rt") as file:
        for line in file:
            event = EVENT.search(line)
            if event and (event["admitted"] or event["refused"]):
                # the load of the most loaded replica is in the reason of a refusal; a replica is idle otherwise
                context.view.state_array["waiting"][1] = int(load.search(line)[1]) if event["refused"] else 0
                admitted = event["admitted"] is not None
                assert policy.lets_in(int(event["admitted"] or event["refused"]), S) == admitted
                decisions[admitted] += 1

    assert decisions == {True: 63, False: 57}
