"""Requests that were sent to a replica and are not yet seen in a status of it: the in-flight account.

Source: llumnix-project/llumnix at 8a693b4, instance_status_local_account.go.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.replica_state cimport DECODE, NEUTRAL, PREFILL
from simulator.routing.llumnix.candidates cimport Candidate, Candidates
from simulator.routing.llumnix.dispatches cimport Dispatch

from simulator.routing.llumnix.names import INFER_TYPES


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

    # The face for tests.

    def note_sent(self, row, replica, infer_type, tokens, hit_tokens=0, now_ns=0):
        """Add a request sent in the role `infer_type`, a name."""
        self.add(row, replica, INFER_TYPES.index(infer_type), tokens, hit_tokens, now_ns)

    def note_reverted(self, row, replica):
        """Revert the count of a prefill."""
        self.revert_prefill(row, replica)

    def note_left(self, row, replica=-1):
        """Forget a request."""
        self.remove(row, replica)

    def note_restart(self, replica):
        """Take up a replica anew."""
        self.restart(replica)

    def note_status(self, replica, waited, waiting, now_ns):
        """Compare with a status that shows the rows `waited` lately and `waiting`, a list, which may name strangers."""
        cdef int32_t index = self.first_of_replica[replica]
        while index >= 0:
            self.items[index].was_waiting = self.items[index].row in waited
            self.items[index].is_waiting = self.items[index].row in waiting
            index = self.items[index].next_of_replica
        self.reconcile(replica, <int32_t>len(waiting), now_ns)

    def dispatches(self, replica):
        """Return row -> (role, tokens, uncomputed tokens, whether a status has shown it) of a replica."""
        cdef int32_t index = self.first_of_replica[replica]
        found = {}
        while index >= 0:
            one = self.items[index]
            found[one.row] = (INFER_TYPES[one.infer_type], one.tokens, one.uncomputed_tokens, bool(one.is_found))
            index = one.next_of_replica
        return found
