"""Requests with prefill at one replica and decode at another.

Such a request has two rows in the engine: its own, for the decode leg, and behind all clients' rows that of its
prefill leg, with the prompt as its text and one hidden token as its output. Each row has its own state and
replica; policies and results use the first alone.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.domain.transfer cimport Transfer
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.hand_over.leases cimport Leases
from simulator.engine.hand_over.tier cimport Place
from simulator.engine.hand_over.transport cimport Transport
from simulator.engine.hand_over.wire cimport Wire
from simulator.engine.operations.base cimport Operation


cdef enum Order:                # by index in ORDERS in plan.py
    SOURCE_FIRST
    BOTH_AT_ONCE
    DESTINATION_FIRST


cdef enum Granularity:          # by index in GRANULARITIES in plan.py
    PROMPT
    CHUNK
    LAYER


cdef struct End:                # a replica as an end of transfers
    void* replica               # Replica, borrowed
    void* scheduler             # its Scheduler, borrowed
    void* first                 # Gateway that sends it prefill legs, borrowed; NULL: none
    void* second                # Gateway for the decode legs of prompts that it computes, borrowed
    void* ranks                 # RankRouter of that gateway, borrowed; NULL: no replica there has several ranks
    int32_t pool
    int32_t block_size


@cython.final
cdef class HandOver(Operation):
    cdef readonly Transport transport
    cdef readonly Leases leases
    cdef readonly object table          # structured array (requests,), records.TRANSFER
    cdef Transfer* _transfers           # [row of a client] of `table`
    cdef End* _ends                     # [replica]
    cdef Wire _wire
    cdef list _watchers                 # called as watcher(replica, now_ns) when a replica has less to do for others
    cdef bint _is_watched               # _watchers is not empty
    cdef Fleet _fleet
    cdef list _gateways                 # Gateway
    cdef list _pairings                 # Pairing, referred to by the gateways
    cdef Request* _requests             # [row] borrowed from the workload
    cdef int32_t _num_clients           # rows from here on are prefill legs
    cdef set _acquainted                # (prefill replica, decode replica) after a handshake; None: no handshakes
    cdef int64_t _handshake_ns, _hop_ns, _notice_ns
    cdef bint _takes_whole_prompt, _pushes, _sends_token, _is_unawaited
    cdef Order _order
    cdef Place _place
    cdef Granularity _granularity
    cdef int64_t _awaited_ns            # when the transport's next event is due; NEVER_NS: there is none
    cdef readonly int64_t moved         # requests with all KV transferred
    cdef int64_t _awaited_lease_ns      # when the next lease ends; NEVER_NS: none
    cdef bint _has_leases               # blocks wait for the decode replica to read them: nixl
    cdef readonly int64_t started       # transfers or parts; those completed, and those that failed or were
    cdef readonly int64_t completed     # cancelled: because the prefill replica failed, or the decode replica
    cdef readonly int64_t failed
    cdef readonly int64_t cancelled
    cdef readonly int64_t expired       # leases that ran out
    cdef readonly int64_t num_bytes     # bytes moved

    # Split a request: its prefill leg is for a replica, and its decode leg for another, as numbered in the view of
    # the second gateway; -1: not chosen yet. `is_all`: the request ends with its prompt.
    cdef int begin(self, int32_t row, int32_t decode_place, int32_t prefill_replica, bint is_all) except -1 nogil

    # Send a split request: its prefill leg to a replica of the first gateway, as numbered there; its decode leg to the
    # chosen one; or both, depending on the protocol.
    cdef int send(self, int32_t row, int32_t prefill_place, int64_t now_ns) except -1 nogil

    # One replica serves the whole request.
    cdef void keep_whole(self, int32_t row) noexcept nogil

    # Send a request to a decode replica, if its prompt has been computed; False: it has not.
    cdef bint go_on(self, int32_t row, int64_t now_ns) except -1 nogil

    cdef int _leg_left(self, int32_t leg, int64_t now_ns) except -1 nogil
    cdef int _complete(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _greet(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _meet(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _move(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _start(self, int32_t row, int64_t first, int64_t behind, int64_t now_ns) except -1 nogil
    cdef int _send_tail(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _piece_came(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _reserve(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _carry(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _queue_unawaited(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _deliver_kv(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _release(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int32_t _place_now(self, int32_t row, int64_t now_ns) except -2 nogil
    cdef int32_t _decode_place(self, int32_t row, int64_t now_ns) except -2 nogil
    cdef int _come(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _let_go(self, int32_t row, int64_t now_ns, int64_t notice_ns) except -1 nogil
    cdef int _free_slot(self, int32_t source, int32_t slot, int64_t done_ns) except -1 nogil
    cdef int _await_leases(self) except -1 nogil
    cdef int _expire(self, int64_t now_ns) except -1 nogil
    cdef int _fail(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _break_off(self, int32_t row, bint by_reader, int64_t now_ns) except -1 nogil
    cdef int _give_up(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef bint _is_cut_off(self, int32_t replica) noexcept nogil
    cdef void _desert(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef int _tell(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _tell_watchers(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _await_transport(self) except -1 nogil
    cdef bint _is_acquainted(self, int32_t one, int32_t other) except -1
