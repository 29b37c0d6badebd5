"""The queue of admitted requests until a replica can take them: lines of SLO classes in bands of priority."""
cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport INT64_MIN
from libc.stdlib cimport calloc, free

from simulator.core.clock cimport NEVER_NS, ns_from_s
from simulator.core.errors cimport broken
from simulator.core.index_list cimport NONE, new_list

from functools import partial

from msgspec.structs import replace
import numpy as np

from simulator.domain.gateway import GatewayQueueParameters
from simulator.errors import BadAnswer

cdef enum Order:
    FIFO = 0
    PRIORITY = 1
    SLO_DEADLINE = 2
    EDF = 3
    SLACK = 4

cdef enum Shedding:
    NO_SHEDDING = 0
    SHEDDABLE = 1
    LOWEST = 2

cdef int64_t REVOKED = INT64_MIN

ORDERS = ("fifo", "priority", "slo_deadline", "edf", "slack")
SHEDDING = ("none", "sheddable", "lowest")


cdef double measured(SaturationDetector detector, int64_t now_ns) except -1.0 nogil:
    """Return the saturation by a detector, a finite number >= 0."""
    cdef double saturation = detector.saturation(now_ns)
    if not 0.0 <= saturation < INFINITY:
        with gil:
            raise BadAnswer(detector, "saturation", "a finite number >= 0", saturation)
    return saturation


def _detector_of(parameters, context, view):
    """Return the detector of a queue for the replicas of a view."""
    return context.make("saturation", parameters.saturation, replace(context, view=view))


@cython.final
cdef class GatewayQueue:
    """Requests that wait at the gateway, none at first.

    Source of the rules: BLIS (inference-sim), sim/cluster/gateway_queue.go, eviction_tracker.go and cluster.go; of edf,
    las, the limits and bytes: llm-d-router ebab6879, flow control; of slack and reclamation: their modules.

    parameters : simulator.domain.gateway.GatewayQueueParameters.
    context : AdmissionContext, which makes the detector.
    owner : GatewayQueue of another instance of the gateway, with records of all requests; None: itself.
    """

    Parameters = GatewayQueueParameters

    def __cinit__(self, parameters, context, owner=None):
        self._owner = owner
        self._make_detector = partial(_detector_of, parameters, context)
        self._detector = self._make_detector(context.view)
        self._view, self._all_legs = context.view, parameters.saturation_legs == "all"
        self.reads_state = self._detector.reads_state
        self.ttl_ns = ns_from_s(parameters.ttl_s)
        self.no_replica_ttl_ns = ns_from_s(parameters.no_endpoint_ttl_s) or self.ttl_ns
        self._scan_ns = ns_from_s(parameters.expiry_scan_s)
        self.tries_on_departure = parameters.dispatch == "departures"
        self.tick_ns = 0 if self.tries_on_departure else ns_from_s(parameters.tick_s)
        self._bound(parameters)
        self._limits = UsageLimits(parameters.limits, parameters.lowest_ceiling)
        self._order = ORDERS.index(parameters.order)
        self._shedding = SHEDDING.index(parameters.shedding)
        self._recalls = parameters.in_flight_eviction
        if parameters.reclamation is not None:
            self._reclamation = Reclamation(parameters.reclamation)
        self.recalls_queued_only = parameters.upstream_compat
        self.evicted = self.recalled = -1
        self._classes = ClassTable(context.workload, context.classes)
        self._num_rows, self._workload = len(context.workload.demands), context.workload
        self._links = IndexLinks(self._num_rows) if self._owner is None else self._owner._links
        self._reserve()
        self._lay_out()
        self._is_fair = parameters.fairness != "none"
        if self._is_fair:
            self._flows = TenantFlows(context.workload, self._num_lines, self._num_bands + 1)
        if self._order == EDF:
            self._due = DueHeaps(self._num_rows, self._num_lines * (self._flows.num_tenants if self._is_fair else 1))
        if self._order == SLACK:
            self._sizes = SizeFlows(context.workload, self._num_lines, parameters.slack)
        if parameters.fairness == "las":
            self._service = AttainedService(context.workload, self._flows.num_tenants, parameters.las)

    def _bound(self, parameters):
        self._max_requests = parameters.max_requests or NEVER_NS
        self._max_per_band = parameters.max_requests_per_band or NEVER_NS
        self._max_bytes, self._max_bytes_per_band = parameters.max_bytes or NEVER_NS, (
            parameters.max_bytes_per_band or NEVER_NS)
        self._bytes_per_token = parameters.bytes_per_token if parameters.counts_bytes else 0.0

    def watch_decodes(self, view):
        """Heed the saturation of decode replicas, too, if all legs count; `view` : of the decode replicas."""
        if self._all_legs:
            self._decode_detector = self._make_detector(view)

    def _reserve(self):
        cdef const Request[::1] requests = self._workload.requests
        cdef size_t lines = self._classes.num_classes
        self._entries = self._owner._entries if self._owner is not None else <Entry*>calloc(
            max(self._num_rows, 1), sizeof(Entry))
        self._lines = <Line*>calloc(lines, sizeof(Line))
        self._line_of = <int32_t*>calloc(lines, sizeof(int32_t))
        self._bands = <Band*>calloc(lines + 1, sizeof(Band))
        if self._entries == NULL or self._lines == NULL or self._line_of == NULL or self._bands == NULL:
            raise MemoryError()
        if len(requests):
            self._requests = &requests[0]

    def _lay_out(self):
        cdef int32_t each, i
        cdef Band* band = NULL
        for each in np.argsort(-self._classes.priorities, kind="stable"):
            if band == NULL or self._classes.priority[each] != band.priority:
                band = &self._bands[self._num_bands]
                band.priority, band.last_tenant = self._classes.priority[each], -1
                band.first_line = self._num_lines
                self._num_bands += 1
            i = self._num_lines
            self._lines[i].waiting, self._lines[i].in_flight = new_list(), new_list()
            self._lines[i].band = self._num_bands - 1
            self._line_of[each] = i
            self._num_lines += 1
            band.end_line = self._num_lines
        band = &self._bands[self._num_bands]
        band.end_line, band.last_tenant = self._num_lines, -1

    def __dealloc__(self):
        if self._owner is None:
            free(self._entries)
        free(self._lines)
        free(self._line_of)
        free(self._bands)

    cdef int64_t _bytes_of(self, int32_t row) noexcept nogil:
        return <int64_t>(self._bytes_per_token * self._requests[row].prompt_tokens + 0.5)

    cdef bint _has_room(self, int32_t row, int32_t band) noexcept nogil:
        cdef int64_t size = self._bytes_of(row)
        return (self._bands[band].size < self._max_per_band and size <= self._max_bytes - self.num_bytes
                and size <= self._max_bytes_per_band - self._bands[band].bytes)

    cdef void _open(self, int32_t band) noexcept nogil:
        # A band counts from its first request on.
        self._bands[band].is_open = True
        self._highest_open = band if self._num_open == 0 else min(self._highest_open, band)
        self._lowest_open = max(self._lowest_open, band)
        self._num_open += 1

    cdef int offer(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t line = self._line_of[self._classes.class_of(row)]
        cdef int32_t band = self._lines[line].band
        self.evicted = -1
        if not self._bands[band].is_open:
            self._open(band)
        if not self._has_room(row, band):
            return REFUSED
        if self.size >= self._max_requests:
            self.evicted = self._victim(band)
            if self.evicted < 0:
                return REFUSED
            self._take(self.evicted)
        self._places += 1
        self._entries[row].place = self._places
        self._entries[row].offered_ns = now_ns
        self._links.push_back(&self._lines[line].waiting, row)
        if self._is_fair:
            self._flows.push(row, line, self._num_bands if self._order == FIFO else band)
        if self._due is not None:
            self._due.push(row, self._flow_of(row, line), self._deadline(row), self._places)
        if self._sizes is not None:
            self._sizes.push(row, line, now_ns, self._places)
        self._bands[band].size += 1
        self._bands[band].bytes += self._bytes_of(row)
        self.num_bytes += self._bytes_of(row)
        self.size += 1
        return QUEUED

    cdef int32_t next(self, int64_t now_ns) except -2 nogil:
        cdef double saturation
        cdef int32_t band, row
        self.recalled = -1
        if self.size == 0:
            return -1
        saturation = measured(self._detector, now_ns)
        if self._decode_detector is not None:
            saturation = max(saturation, measured(self._decode_detector, now_ns))
        if self._recalls and self._reclamation is None and saturation >= 1.0:
            self.recalled = self._recallable()
            if self.recalled >= 0:
                self._land(self.recalled)
                return -1
        band = self._open_band(saturation)
        if band < 0:
            if self._reclamation is not None and self._reclamation.is_open(now_ns):
                self._reclaim(saturation, now_ns)
            return -1
        row = self._head_of(band, now_ns)
        self._take(row)
        return row

    cdef bint remove(self, int32_t row) noexcept nogil:
        if self._entries[row].place <= 0:
            return False
        self._take(row)
        return True

    cdef bint has_replicas(self) noexcept nogil:
        cdef int32_t i = 0
        while i < self._view.num_replicas and not self._view.accounts[i].is_routable:
            i += 1
        return i < self._view.num_replicas

    cdef int64_t scan_after(self, int64_t now_ns) noexcept nogil:
        return now_ns if self._scan_ns == 0 else (now_ns + self._scan_ns - 1) // self._scan_ns * self._scan_ns

    cdef int32_t expire(self, bint has_replicas, int64_t now_ns) noexcept nogil:
        cdef int64_t ttl_ns = self.ttl_ns if has_replicas else self.no_replica_ttl_ns
        cdef int32_t i, row, oldest = -1
        if ttl_ns == 0:
            return -1
        for i in range(self._num_lines):
            row = self._lines[i].waiting.head
            if row != NONE and (oldest < 0 or self._entries[row].place < self._entries[oldest].place):
                oldest = row
        if oldest < 0 or self._entries[oldest].offered_ns + ttl_ns > now_ns:
            return -1
        self._take(oldest)
        return oldest

    cdef int sent(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t line = self._line_of[self._classes.class_of(row)]
        self._num_in_flight += 1
        if self._recalls and self._classes.is_sheddable(row) and self._entries[row].place == 0:
            self._places += 1
            self._entries[row].place = -self._places
            self._links.push_back(&self._lines[line].in_flight, row)
        return 0

    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self._service is not None:
            self._service.completed(self._flows.rank(row), row, now_ns)
        self._num_in_flight -= 1
        if self._entries[row].place == REVOKED:
            self._entries[row].place = 0
            self._reclamation.ended(now_ns)
        self._land(row)
        return 0

    cdef void _land(self, int32_t row) noexcept nogil:
        # A row is not in flight any more; a recalled one leaves its replica later.
        if self._entries[row].place < 0:
            self._entries[row].place = 0
            self._links.remove(&self._lines[self._line_of[self._classes.class_of(row)]].in_flight, row)

    cdef void _take(self, int32_t row) noexcept nogil:
        cdef int32_t line = self._line_of[self._classes.class_of(row)]
        cdef int32_t band = self._lines[line].band
        self._entries[row].place = 0
        self._links.remove(&self._lines[line].waiting, row)
        self._bands[band].size -= 1
        self._bands[band].bytes -= self._bytes_of(row)
        self.num_bytes -= self._bytes_of(row)
        self.size -= 1
        if self._is_fair:
            band = self._num_bands if self._order == FIFO else band
            self._flows.remove(row, line, band, self._bands[band].first_line, self._bands[band].end_line)
        if self._due is not None:
            self._due.remove(row, self._flow_of(row, line))
        if self._sizes is not None:
            self._sizes.remove(row, line)

    cdef int32_t _victim(self, int32_t for_band) noexcept nogil:
        # The newest row of the lowest band, if that is lower than `for_band` and may be shed; -1: none.
        cdef int32_t band = self._num_bands - 1, i, row, newest = -1
        while band > for_band and self._bands[band].size == 0:
            band -= 1
        if band <= for_band or self._shedding == NO_SHEDDING:
            return -1
        if self._shedding == SHEDDABLE and self._bands[band].priority >= 0:
            return -1
        for i in range(self._bands[band].first_line, self._bands[band].end_line):
            row = self._lines[i].waiting.tail
            if row != NONE and (newest < 0 or self._entries[row].place > self._entries[newest].place):
                newest = row
        return newest

    cdef int32_t _recallable(self) noexcept nogil:
        # The row to recall if one of priority >= 0 waits; -1: none.
        cdef int32_t band = 0
        while band < self._num_bands and self._bands[band].priority >= 0 and self._bands[band].size == 0:
            band += 1
        if band == self._num_bands or self._bands[band].priority < 0:
            return -1
        return self._last_sheddable()

    cdef int32_t _last_sheddable(self) noexcept nogil:
        # The row that was sent last of the lowest priority in flight, if that is below 0; -1: none.
        cdef int32_t band = -1, i = self._num_lines - 1, row, latest = -1
        while i >= 0 and (latest < 0 or self._lines[i].band == band):
            row = self._lines[i].in_flight.tail
            if row != NONE and (latest < 0 or self._entries[row].place < self._entries[latest].place):
                latest, band = row, self._lines[i].band
            i -= 1
        return latest

    cdef void _reclaim(self, double saturation, int64_t now_ns) noexcept nogil:
        # Decide which requests in flight are revoked for the first band with rows that saturation holds back.
        cdef int32_t victim = self._last_sheddable(), band, position = 0
        cdef double ceiling
        for band in range(self._num_bands if victim >= 0 else 0):
            if not self._bands[band].is_open:
                continue
            ceiling = self._ceiling(band, position, saturation)
            position += 1
            if self._bands[band].priority <= self._classes.priority_of(victim):
                return
            if self._bands[band].size > 0 and 0.0 < ceiling <= saturation:
                self._reclamation.decide(saturation, ceiling, self._num_in_flight)
                self._least_demand = self._bands[band].priority
                self.recalled = self.recall_more()
                return

    cdef int32_t recall_more(self) noexcept nogil:
        cdef int32_t row
        if self._reclamation is None or self._reclamation.due == 0:
            return -1
        row = self._last_sheddable()
        if row < 0 or self._classes.priority_of(row) >= self._least_demand:
            self._reclamation.stop()
            return -1
        self._land(row)
        self._entries[row].place = REVOKED
        self._reclamation.revoke()
        return row

    cdef double _ceiling(self, int32_t band, int32_t position, double saturation) noexcept nogil:
        # The saturation that holds back an open band.
        cdef double lowest = self._bands[self._lowest_open].priority, highest = self._bands[self._highest_open].priority
        cdef double height = (self._bands[band].priority - lowest) / max(highest - lowest, 1.0)
        return min(1.0, self._limits.ceiling(position, self._num_open, height, saturation))

    cdef int32_t _open_band(self, double saturation) noexcept nogil:
        # The first band with rows, unless saturation holds it or one above it; -1: none. Bands count as soon as a
        # request of theirs has come, empty ones too.
        cdef int32_t band, position = 0
        if self._order == FIFO:
            return self._num_bands if saturation < 1.0 else -1
        self._limits.begin(saturation)
        for band in range(self._num_bands):
            if not self._bands[band].is_open:
                continue
            if saturation >= self._ceiling(band, position, saturation):
                return -1
            if self._bands[band].size > 0:
                return band
            position += 1
        return -1

    cdef int32_t _tenant_of(self, int32_t band, int64_t now_ns) noexcept nogil:
        # The tenant of a band that is to go first; one has a row there.
        cdef int32_t first, tenant, oldest, i, row
        if self._service is None:
            return self._flows.next_tenant(band, self._bands[band].last_tenant)
        first = tenant = self._flows.next_tenant(band, -1)
        while True:
            oldest = -1
            for i in range(self._bands[band].first_line, self._bands[band].end_line):
                row = self._flows.head(i, tenant)
                if row != NONE and (oldest < 0 or self._entries[row].place < self._entries[oldest].place):
                    oldest = row
            self._service.compare(tenant, now_ns - self._entries[oldest].offered_ns, now_ns)
            tenant = self._flows.next_tenant(band, tenant)
            if tenant == first:
                return self._service.best(self._flows, band)

    cdef int32_t _head_of(self, int32_t band, int64_t now_ns) noexcept nogil:
        # The row of a band that is to go first; one waits there.
        cdef int32_t i, row, first = -1, tenant = -1
        if self._is_fair:
            tenant = self._tenant_of(band, now_ns)
            self._bands[band].last_tenant = tenant
        for i in range(self._bands[band].first_line, self._bands[band].end_line):
            row = self._head_in(i, tenant)
            if row != NONE and (first < 0 or self._goes_before(row, first)):
                first = row
        return first

    cdef int32_t _head_in(self, int32_t line, int32_t tenant) noexcept nogil:
        # The row of a line, and of a tenant unless that is -1, that is to go first; NONE: none waits.
        if self._due is not None:
            return self._due.first(line * self._flows.num_tenants + tenant if self._is_fair else line)
        if self._sizes is not None:
            return self._sizes.first(line)
        return self._lines[line].waiting.head if tenant < 0 else self._flows.head(line, tenant)

    cdef int32_t _flow_of(self, int32_t row, int32_t line) noexcept nogil:
        return line * self._flows.num_tenants + self._flows.rank(row) if self._is_fair else line

    cdef bint _goes_before(self, int32_t row, int32_t other) noexcept nogil:
        cdef int64_t deadline, others
        if self._order >= SLO_DEADLINE:
            deadline, others = self._deadline(row), self._deadline(other)
            if deadline != others:
                return deadline < others
        return self._entries[row].place < self._entries[other].place

    cdef int64_t _deadline(self, int32_t row) noexcept nogil:
        cdef int64_t target_ns = self._classes.target_ns[self._classes.class_of(row)], due_ns
        if self._order == SLACK:
            return self._sizes.due_ns(row)
        if self._order == EDF:
            due_ns = self._classes.demands[row].deadline_ns
            if due_ns < 0:
                due_ns = NEVER_NS
            return due_ns if self.ttl_ns == 0 else min(due_ns, self._entries[row].offered_ns + self.ttl_ns)
        return NEVER_NS if target_ns == NEVER_NS else self._entries[row].offered_ns + target_ns

    cpdef int check(self) except -1 nogil:
        cdef int32_t band, i
        cdef int64_t size = 0, in_band
        for band in range(self._num_bands):
            in_band = 0
            for i in range(self._bands[band].first_line, self._bands[band].end_line):
                self._links.check_list(&self._lines[i].waiting)
                self._links.check_list(&self._lines[i].in_flight)
                in_band += self._lines[i].waiting.size
            if in_band != self._bands[band].size:
                return broken("GatewayQueue: a band has not the size of its lines")
            size += in_band
        if size != self.size:
            return broken("GatewayQueue: the bands hold not all rows that wait")
        if self._is_fair:
            self._flows.check(size)
        if self._due is not None:
            self._due.check(size)
        if self._sizes is not None:
            self._sizes.check(size)
        return 0

    # The face for tests and exploration.

    def __len__(self):
        return self.size

    def offer_row(self, row, now_ns):
        """Take a request in; return whether there is room."""
        return self.offer(row, now_ns) == QUEUED

    def next_row(self, now_ns):
        """Take out the row that is to be routed now; -1 if there is none."""
        return self.next(now_ns)

    def recalled_rows(self):
        """Return the requests in flight that the last search recalls."""
        rows, row = [], self.recalled
        while row >= 0:
            rows.append(row)
            row = self.recall_more()
        return rows

    def remove_row(self, row):
        """Take out a row with a client that gave up; return whether it was there."""
        return bool(self.remove(row))

    def expire_row(self, now_ns):
        """Take out a row that has waited for too long; -1 if there is none."""
        return self.expire(self.has_replicas(), now_ns)

    def note_sent(self, row, now_ns):
        """Note that a request was sent to a replica."""
        self.sent(row, now_ns)

    def note_left(self, row, now_ns):
        """Note that a request has left its replica."""
        self.left(row, now_ns)
