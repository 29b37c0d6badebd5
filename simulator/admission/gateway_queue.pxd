"""The queue of admitted requests until a replica can take them.

A request waits in the line of its SLO class, and in the flow of its tenant within that line. All lines are first in,
first out, under any order of dispatch: the next request is found among the heads of lines or of one tenant's flows, the
newest among the tails; with order edf each line, or flow, also has a heap, with order slack each line has a flow for
each size. Every operation costs O(classes), or O(log waiting requests) with order edf and O(classes x sizes) with order
slack; with fairness las the tenant is sought among all that have some in the band.
"""
cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.admission.attained_service cimport AttainedService
from simulator.admission.class_table cimport ClassTable
from simulator.admission.due_heaps cimport DueHeaps
from simulator.admission.reclamation cimport Reclamation
from simulator.admission.saturation.base cimport SaturationDetector
from simulator.admission.size_flows cimport SizeFlows
from simulator.admission.tenant_flows cimport TenantFlows
from simulator.admission.usage_limits cimport UsageLimits
from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.domain.request cimport Request
from simulator.signals.view cimport View


cdef enum OfferOutcome:
    QUEUED = 0                  # it waits; `evicted` is -1, or the row that had to go for it
    REFUSED = 1                 # no room


cdef struct Entry:              # 16 bytes a row
    int64_t place               # 0: it does neither; > 0: it waits; < 0: it is in flight and may be recalled. Its size
                                # grows with each offer and each sending. REVOKED: it was recalled, and has not left
    int64_t offered_ns


cdef struct Line:               # one SLO class
    IndexList waiting           # in the order of offers
    IndexList in_flight         # in the order in which they were sent; only if they may be recalled
    int32_t band


cdef struct Band:               # classes of equal priority
    int32_t first_line          # its lines are adjacent
    int32_t end_line
    int32_t size                # rows that wait
    int64_t bytes               # of their bodies
    int32_t priority
    int32_t last_tenant         # served last, by rank; -1: none yet
    int8_t is_open              # a request of it has arrived


@cython.final
cdef class GatewayQueue:
    cdef readonly int64_t size          # rows that wait
    cdef readonly int64_t num_bytes     # of their bodies
    cdef readonly int64_t ttl_ns        # longest wait, then the request is to be removed; 0: no limit
    cdef readonly int64_t no_replica_ttl_ns     # in place of it while no replica is routable
    cdef readonly int64_t tick_ns       # interval at which a dispatch is tried while rows wait; 0: no ticks
    cdef readonly bint tries_on_departure       # one dispatch is tried for each request that leaves a replica
    cdef readonly bint reads_state      # its detector looks at replicas
    cdef readonly bint recalls_queued_only      # a request on its way to the queue of its replica is recalled in vain
    cdef readonly int32_t evicted       # by the last `offer`, to make room; -1: none
    cdef readonly int32_t recalled      # by the last `next`: a request in flight that is to be taken off its replica,
                                        # and lost, so that more urgent ones pass; -1: none

    # A request arrives; OfferOutcome.
    cdef int offer(self, int32_t row, int64_t now_ns) except -1 nogil

    # Take out the row that is to be routed now; -1: none, since nothing waits or the replicas are saturated.
    cdef int32_t next(self, int64_t now_ns) except -2 nogil

    # A further request in flight that is to be taken off its replica, as `recalled`; -1: none.
    cdef int32_t recall_more(self) noexcept nogil

    # Take out a row with a client that gave up; 1 if it was there.
    cdef bint remove(self, int32_t row) noexcept nogil

    # Take out a row that has waited for too long, with or without routable replicas; -1: none.
    cdef int32_t expire(self, bint has_replicas, int64_t now_ns) noexcept nogil

    # Is a replica routable? The instant of the first search for ended waits from `now_ns` on.
    cdef bint has_replicas(self) noexcept nogil
    cdef int64_t scan_after(self, int64_t now_ns) noexcept nogil

    # A request that went through here was sent to a replica; it has left the replica.
    cdef int sent(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil

    cdef SaturationDetector _detector
    cdef SaturationDetector _decode_detector    # of the replicas of the second leg; None: they do not count
    cdef object _make_detector          # view -> detector of its replicas
    cdef View _view                     # of the replicas of the first leg
    cdef bint _all_legs                 # both detectors count, if requests have two legs
    cdef int64_t _scan_ns               # interval of searches for ended waits; 0: each wait is found at its instant
    cdef ClassTable _classes
    cdef int32_t _num_rows
    cdef Entry* _entries                # [row], shared by the instances of a gateway: each row waits at one
    cdef GatewayQueue _owner            # owner of entries and links; None: itself
    cdef IndexLinks _links              # of lines; a row is in one at most, waiting or in flight
    cdef Line* _lines                   # [line] the most urgent first
    cdef int32_t* _line_of              # [class]
    cdef int32_t _num_lines
    cdef Band* _bands                   # [band] the most urgent first; after them one of all lines
    cdef int32_t _num_bands
    cdef int32_t _num_open              # bands that count
    cdef int32_t _highest_open          # the most urgent open band; the next is the lowest
    cdef int32_t _lowest_open
    cdef int64_t _places                # counted so far

    cdef TenantFlows _flows             # waiting rows by tenant; None without fairness

    cdef DueHeaps _due                  # waiting rows by deadline, with order edf; None otherwise
    cdef SizeFlows _sizes               # waiting rows by size, with order slack; None otherwise

    cdef AttainedService _service       # of tenants; None without fairness las
    cdef UsageLimits _limits

    cdef int64_t _max_requests          # NEVER_NS: any number
    cdef int64_t _max_per_band
    cdef int64_t _max_bytes             # NEVER_NS: any number; as the next
    cdef int64_t _max_bytes_per_band
    cdef double _bytes_per_token        # 0: bytes are not counted
    cdef const Request* _requests       # [row] borrowed
    cdef object _workload               # owner of the requests
    cdef int8_t _order                  # Order, as in gateway_queue.pyx; _shedding: Shedding there
    cdef int8_t _shedding
    cdef bint _is_fair
    cdef bint _recalls
    cdef Reclamation _reclamation       # None: one request is recalled at each attempt
    cdef int32_t _num_in_flight         # rows at replicas
    cdef int32_t _least_demand          # priority of the band for which requests are revoked

    cdef int64_t _bytes_of(self, int32_t row) noexcept nogil
    cdef bint _has_room(self, int32_t row, int32_t band) noexcept nogil
    cdef void _take(self, int32_t row) noexcept nogil
    cdef void _land(self, int32_t row) noexcept nogil
    cdef int32_t _victim(self, int32_t for_band) noexcept nogil
    cdef int32_t _recallable(self) noexcept nogil
    cdef int32_t _last_sheddable(self) noexcept nogil
    cdef void _reclaim(self, double saturation, int64_t now_ns) noexcept nogil
    cdef void _open(self, int32_t band) noexcept nogil
    cdef double _ceiling(self, int32_t band, int32_t position, double saturation) noexcept nogil
    cdef int32_t _open_band(self, double saturation) noexcept nogil
    cdef int32_t _tenant_of(self, int32_t band, int64_t now_ns) noexcept nogil
    cdef int32_t _head_of(self, int32_t band, int64_t now_ns) noexcept nogil
    cdef int32_t _head_in(self, int32_t line, int32_t tenant) noexcept nogil
    cdef int32_t _flow_of(self, int32_t row, int32_t line) noexcept nogil
    cdef int64_t _deadline(self, int32_t row) noexcept nogil
    cdef bint _goes_before(self, int32_t row, int32_t other) noexcept nogil

    # Raise RuntimeError if lines, flows, bands and entries do not agree with each other.
    cpdef int check(self) except -1 nogil
