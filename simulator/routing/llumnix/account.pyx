"""Records of the requests at each replica: all, in flight (not yet in a status), and prefill legs.

Statuses do not separate prefill legs from decodes; an instance of Llumnix counts its decodes itself: waiting and
running requests with max_tokens > 1; a prefill leg has 1.
Source: llumnix-project/llumnix at 8a693b4, instance_status_local_account.go, and the status collector of its
engine.
"""
from libc.stdint cimport INT32_MAX
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
cimport cython

from simulator.core.errors cimport broken, out_of_memory
from simulator.core.memory cimport resize
from simulator.domain.replica_state cimport DECODE, NEUTRAL, PREFILL
from simulator.domain.request cimport RUNNING, WAITING


cdef class Dispatches:
    """A store of dispatches of `num_rows` requests to `num_replicas` replicas."""

    def __cinit__(self, int32_t num_replicas, int32_t num_rows, *_, **__):
        cdef int32_t i
        self._num_replicas, self._num_rows, self._free = num_replicas, num_rows, -1
        self.first_of_replica = <int32_t*>malloc(max(1, num_replicas) * sizeof(int32_t))
        self.first_of_row = <int32_t*>malloc(max(1, num_rows) * sizeof(int32_t))
        if self.first_of_replica == NULL or self.first_of_row == NULL:
            raise MemoryError()
        for i in range(num_replicas):
            self.first_of_replica[i] = -1
        for i in range(num_rows):
            self.first_of_row[i] = -1

    def __dealloc__(self):
        free(self.items)
        free(self.first_of_replica)
        free(self.first_of_row)

    cdef int32_t insert(self, int32_t row, int32_t replica) except -1 nogil:
        cdef int32_t index, first = self.first_of_replica[replica]
        cdef Dispatch* one
        if self._free < 0:
            self._grow()
        index = self._free
        one = &self.items[index]
        self._free = one.next_of_replica
        memset(one, 0, sizeof(Dispatch))
        one.row, one.replica = row, replica
        one.next_of_replica, one.previous_of_replica = first, -1
        if first >= 0:
            self.items[first].previous_of_replica = index
        one.next_of_row = self.first_of_row[row]
        self.first_of_replica[replica] = self.first_of_row[row] = index
        return index

    cdef void drop(self, int32_t index) noexcept nogil:
        cdef Dispatch* one = &self.items[index]
        cdef int32_t* link = &self.first_of_row[one.row]
        while link[0] != index:
            link = &self.items[link[0]].next_of_row
        link[0] = one.next_of_row
        if one.previous_of_replica >= 0:
            self.items[one.previous_of_replica].next_of_replica = one.next_of_replica
        else:
            self.first_of_replica[one.replica] = one.next_of_replica
        if one.next_of_replica >= 0:
            self.items[one.next_of_replica].previous_of_replica = one.previous_of_replica
        one.next_of_replica, self._free = self._free, index

    cdef int _grow(self) except -1 nogil:
        cdef int32_t i, room = max(64, 2 * self._room)
        if self._room > INT32_MAX // 2:
            return out_of_memory()
        resize(&self.items, room * sizeof(Dispatch))
        for i in range(self._room, room):
            self.items[i].next_of_replica = i + 1 if i + 1 < room else -1
        self._free, self._room = self._room, room
        return 0

    cpdef int check(self) except -1:
        cdef int32_t replica, row, index, before, of_rows = 0, at_replicas = 0, unused = 0
        for row in range(self._num_rows):
            index = self.first_of_row[row]
            while index >= 0 and of_rows <= self._room:
                of_rows += 1
                index = self.items[index].next_of_row
        if of_rows > self._room:
            return broken("Dispatches: the list of a request has a cycle")
        for replica in range(self._num_replicas):
            index, before = self.first_of_replica[replica], -1
            while index >= 0:
                if self.items[index].replica != replica or self.items[index].previous_of_replica != before:
                    return broken("Dispatches: the list of a replica has strangers, or does not lead back")
                if self.find(self.items[index].row, replica) != index:
                    return broken("Dispatches: a record is not in the list of its request")
                at_replicas += 1
                before, index = index, self.items[index].next_of_replica
        index = self._free
        while index >= 0 and unused <= self._room:
            unused += 1
            index = self.items[index].next_of_replica
        if of_rows != at_replicas or at_replicas + unused != self._room:
            return broken("Dispatches: a record is neither at a replica nor unused")
        return 0


@cython.final
cdef class LocalAccount:
    """Requests in flight to each replica.

    num_replicas, num_rows : replicas and requests there are.
    candidates : Candidates; this account keeps their in-flight fields up to date.
    is_cache_aware : whether hits shorten prefills in flight.
    staleness_s : a dispatch that no status shows is dropped after this many whole seconds.
    leaks : as upstream, a reverted prefill stays in `in_flight`.
    """

    def __init__(self, int32_t num_replicas, int32_t num_rows, Candidates candidates, *, bint is_cache_aware=False,
                 int64_t staleness_s=10, bint leaks=False):
        self._candidates, self._replicas = candidates, candidates.items
        self._is_cache_aware, self._staleness_s, self._leaks = is_cache_aware, staleness_s, leaks

    cdef int add(self, int32_t row, int32_t replica, int8_t infer_type, int64_t tokens, int64_t hit_tokens,
                 int64_t now_ns) except -1 nogil:
        cdef int32_t index = self.find(row, replica)
        cdef Dispatch* one
        if index >= 0 and self.items[index].is_found and not self._leaks:
            self.drop(index)                    # that was an earlier visit; upstream takes it for this one
        elif index >= 0:
            one = &self.items[index]
            if one.infer_type != infer_type and one.infer_type != NEUTRAL:
                self._count(one, DECODE if one.infer_type == PREFILL else PREFILL, 1)
                one.infer_type = NEUTRAL
            return 0
        one = &self.items[self.insert(row, replica)]
        one.infer_type, one.sent_ns, one.tokens = infer_type, now_ns, tokens
        one.uncomputed_tokens = tokens - hit_tokens if self._is_cache_aware else tokens
        self._replicas[replica].in_flight += 1
        self._count(one, infer_type, 1)
        return 0

    cdef int revert_prefill(self, int32_t row, int32_t replica) except -1 nogil:
        cdef int32_t index = self.find(row, replica)
        if index < 0:
            return 0
        self._count(&self.items[index], PREFILL, -1)
        if not self._leaks:
            self._replicas[replica].in_flight -= 1
        self.drop(index)
        return 0

    cdef void remove(self, int32_t row, int32_t replica) noexcept nogil:
        cdef int32_t index = self.first_of_row[row], following
        cdef Dispatch* one
        while index >= 0:
            one = &self.items[index]
            following = one.next_of_row
            if replica < 0 or one.replica == replica:
                if not one.is_found:
                    self._replicas[one.replica].in_flight -= 1
                    self._count(one, one.infer_type, -1)
                self.drop(index)
            index = following

    cdef void restart(self, int32_t replica) noexcept nogil:
        cdef Candidate* candidate = &self._replicas[replica]
        while self.first_of_replica[replica] >= 0:
            self.drop(self.first_of_replica[replica])
        candidate.in_flight = candidate.in_flight_prefills = candidate.in_flight_decodes = 0
        candidate.in_flight_prefill_tokens = candidate.in_flight_decode_tokens = 0

    cdef void reconcile(self, int32_t replica, int32_t waiting, int64_t now_ns) noexcept nogil:
        cdef int32_t index = self.first_of_replica[replica], following
        cdef int64_t uncomputed = 0
        cdef Dispatch* one
        cdef bint is_given_up
        while index >= 0:
            one = &self.items[index]
            following = one.next_of_replica
            if one.is_waiting:
                uncomputed += one.uncomputed_tokens
            is_given_up = (not one.is_found and not one.was_waiting and not one.is_waiting
                           and (now_ns - one.sent_ns) // 1000000000 >= self._staleness_s)
            if is_given_up or (not one.is_found and one.was_waiting):
                self._replicas[replica].in_flight -= 1
                self._count(one, one.infer_type, -1)
            one.is_found |= one.was_waiting
            if is_given_up or (one.is_found and not one.is_waiting):    # found just now, too
                self.drop(index)
            index = following
        if self._is_cache_aware and waiting > 0:
            self._replicas[replica].waiting_prefill_tokens = uncomputed

    cdef void _count(self, const Dispatch* one, int8_t infer_type, int32_t sign) noexcept nogil:
        cdef Candidate* candidate = &self._replicas[one.replica]
        if infer_type != DECODE:
            candidate.in_flight_prefills += sign
            candidate.in_flight_prefill_tokens += sign * one.uncomputed_tokens
        if infer_type != PREFILL:
            candidate.in_flight_decodes += sign
            candidate.in_flight_decode_tokens += sign * one.tokens


@cython.final
cdef class LegCounts(Dispatches):
    """How many prefill legs replicas have.

    num_replicas, num_rows : replicas and requests there are. legs : NumPy array, state of prefill legs.
    """

    def __init__(self, int32_t num_replicas, int32_t num_rows, legs):
        cdef const Request[::1] rows = legs
        self._owner = legs
        if len(legs):
            self._legs = &rows[0]
        self.seen = <LegCount*>calloc(num_replicas, sizeof(LegCount))
        self.pushed = <LegCount*>calloc(num_replicas, sizeof(LegCount))
        if self.seen == NULL or self.pushed == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.seen)
        free(self.pushed)

    cdef int sent(self, int32_t row, int32_t replica) except -1 nogil:
        self.insert(row, replica)
        return 0

    cdef void left(self, int32_t row, int32_t replica) noexcept nogil:
        cdef int32_t index = self.find(row, replica)
        if index >= 0:
            self.drop(index)

    cdef void count(self) noexcept nogil:
        cdef int32_t replica, index
        cdef const Request* leg
        for replica in range(self._num_replicas):
            self.seen[replica].requests, self.seen[replica].tokens = 0, 0
            index = self.first_of_replica[replica]
            while index >= 0:
                leg = &self._legs[self.items[index].row]
                index = self.items[index].next_of_replica
                if leg.status == RUNNING or (leg.status == WAITING and leg.enqueued_ns >= 0):
                    self.seen[replica].requests += 1
                    self.seen[replica].tokens += leg.prompt_tokens

    cdef void push(self) noexcept nogil:
        memcpy(self.pushed, self.seen, self._num_replicas * sizeof(LegCount))
