"""The gateway queue as its rules read: plain lists, scanned at each question."""
from dataclasses import dataclass
from itertools import count

NEVER_NS = 2**63 - 1


@dataclass
class Entry:
    row: int
    place: int
    offered_ns: int
    priority: int
    target_ns: int
    tenant: str
    due_ns: int         # given up, by its client or by the queue

    @property
    def deadline(self):
        return self.offered_ns + self.target_ns if self.target_ns < NEVER_NS else NEVER_NS


class NaiveQueue:
    """What waits and what is in flight.

    facts : [row] (priority, target in ns, tenant's name, instant at which its client gives up).
    keys : the keys of GatewayQueueParameters that matter, ttl_ns in place of ttl_s.
    """

    def __init__(self, facts, **keys):
        self.facts, self.places = facts, count(1)
        self.keys = {"order": "priority", "fairness": "none", "max_requests": 0, "max_requests_per_band": 0,
                     "shedding": "none", "ttl_ns": 0, "lowest_ceiling": 1.0, "in_flight_eviction": False, **keys}
        self.waiting, self.in_flight = [], []
        self.bands = set()
        self.last_tenant = {}

    def offer(self, row, now_ns):
        """Return (whether there was room, the row that had to go or -1)."""
        priority, target_ns, tenant, due_ns = self.facts[row]
        self.bands.add(priority)
        keys, evicted = self.keys, -1
        if keys["max_requests_per_band"] and keys["max_requests_per_band"] <= len(
                [each for each in self.waiting if each.priority == priority]):
            return False, -1
        if keys["max_requests"] and len(self.waiting) >= keys["max_requests"]:
            lowest = min(self.waiting, key=lambda each: (each.priority, -each.place))
            may_go = keys["shedding"] == "lowest" or (keys["shedding"] == "sheddable" and lowest.priority < 0)
            if not may_go or lowest.priority >= priority:
                return False, -1
            self.waiting.remove(lowest)
            evicted = lowest.row
        if keys["ttl_ns"]:
            due_ns = min(due_ns, now_ns + keys["ttl_ns"])
        self.waiting.append(Entry(row, next(self.places), now_ns, priority, target_ns, tenant or "default", due_ns))
        return True, evicted

    def next(self, saturation):
        """Return (the row that goes or -1, the row that is recalled or -1)."""
        if not self.waiting:
            return -1, -1
        if (self.keys["in_flight_eviction"] and saturation >= 1 and self.in_flight
                and any(each.priority >= 0 for each in self.waiting)):
            lowest = min(self.facts[row][0] for row in self.in_flight)
            return -1, self.left([row for row in self.in_flight if self.facts[row][0] == lowest][-1])
        if self.keys["order"] == "fifo":
            return (-1 if saturation >= 1 else self.first_of("all", self.waiting)), -1
        bands = sorted(self.bands, reverse=True)
        for i, band in enumerate(bands):
            ceiling = 1.0 - i * (1.0 - self.keys["lowest_ceiling"]) / (len(bands) - 1) if len(bands) > 1 else 1.0
            if saturation >= ceiling:
                return -1, -1
            entries = [each for each in self.waiting if each.priority == band]
            if entries:
                return self.first_of(band, entries), -1
        return -1, -1

    def first_of(self, band, entries):
        if self.keys["fairness"] == "round_robin":
            tenants = sorted({each.tenant for each in entries})
            last = self.last_tenant.get(band, "")
            tenant = next((each for each in tenants if each > last), tenants[0])
            self.last_tenant[band] = tenant
            entries = [each for each in entries if each.tenant == tenant]
        instant = {"slo_deadline": "deadline", "edf": "due_ns"}.get(self.keys["order"])
        first = min(entries, key=lambda each: (getattr(each, instant) if instant else 0, each.place))
        self.waiting.remove(first)
        return first.row

    def remove(self, row):
        before = len(self.waiting)
        self.waiting = [each for each in self.waiting if each.row != row]
        return len(self.waiting) < before

    def expire(self, now_ns):
        oldest = min(self.waiting, key=lambda each: each.place, default=None)
        if oldest is None or not self.keys["ttl_ns"] or oldest.offered_ns + self.keys["ttl_ns"] > now_ns:
            return -1
        self.waiting.remove(oldest)
        return oldest.row

    def sent(self, row):
        if self.facts[row][0] < 0:
            self.in_flight.append(row)

    def left(self, row):
        if row in self.in_flight:
            self.in_flight.remove(row)
        return row
