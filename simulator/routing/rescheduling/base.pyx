"""Base of reschedulers: moves of requests between replicas, and the choice of a source's requests.

Source of rules and orders: llumnix-project/llumnix at 8a693b4, base_migration_frontend.py:get_migrated_requests and
kvt_migration_frontend.py.
"""
from libc.stdlib cimport free

from simulator.core.memory cimport resize

import numpy as np

RULE_NAMES = ("NUM_REQ", "TOKEN", "RATIO")
ORDER_NAMES = ("LCR", "FCR", "LR", "SR", "FCW", "FCWSR")
MOVABLE = np.dtype([("row", "i4"), ("tokens", "i4"), ("outputs", "i4"), ("is_running", "i1"), ("is_moving", "i1")],
                   align=True)


cdef class Rescheduler:
    """Base of all reschedulers; a policy overrides `plan`.

    A rescheduler is built as `Policy(parameters, context)`, like a router, with the view of its replicas.
    """

    def __cinit__(self, parameters, context, *_, **__):
        self.view = context.view
        self.num_replicas = self.view.num_replicas

    def __dealloc__(self):
        free(self.moves)

    cdef int plan(self, int64_t now_ns) except -1 nogil:
        self.num_moves = 0
        return 0

    cdef int32_t select(self, const Move* move, const Movable* requests, int32_t count, int64_t kv_tokens,
                        int32_t* chosen, int32_t* scratch) noexcept nogil:
        return select_requests(&move.selection, requests, count, kv_tokens, chosen, scratch)

    cdef int add_move(self, int32_t source, int32_t destination, int32_t policy,
                      const Selection* selection) except -1 nogil:
        cdef Move* moves
        cdef int32_t room
        if self.num_moves == self._room:
            room = max(16, 2 * self._room)
            resize(&self.moves, room * sizeof(Move))
            self._room = room
        moves = &self.moves[self.num_moves]
        moves.source, moves.destination, moves.policy, moves.selection = source, destination, policy, selection[0]
        self.num_moves += 1
        return 0

    def planned(self, now_ns):
        """Return the moves decided at an instant: (source, destination, policy, rule, order, value)."""
        self.plan(now_ns)
        return self.listed()

    def listed(self):
        """Return the moves of the last plan, as `planned` does."""
        return [(self.moves[i].source, self.moves[i].destination, self.moves[i].policy,
                 RULE_NAMES[self.moves[i].selection.rule], ORDER_NAMES[self.moves[i].selection.order],
                 self.moves[i].selection.value) for i in range(self.num_moves)]


cdef inline bint may_move(const Movable* one, bint is_running) noexcept nogil:
    """Return whether a request can be chosen by an order: running ones once they have an output token."""
    return one.is_running == is_running and not one.is_moving and (not is_running or one.outputs > 0)


cdef int32_t list_all(const Movable* requests, int32_t count, int32_t* chosen) noexcept nogil:
    cdef int32_t i, is_running, found = 0
    for is_running in range(2):
        for i in range(count):
            if requests[i].is_running == is_running and not requests[i].is_moving:
                chosen[found] = i
                found += 1
    return found


cdef void sort_by_length(const Movable* requests, int32_t* listed, int32_t count, int32_t sign) noexcept nogil:
    """Sort by the length of texts, shortest first for sign 1; stable. Batches are some hundred requests at most."""
    cdef int32_t i, j, one
    for i in range(1, count):
        one, j = listed[i], i
        while j > 0 and sign * (requests[listed[j - 1]].tokens - requests[one].tokens) > 0:
            listed[j] = listed[j - 1]
            j -= 1
        listed[j] = one


cdef int32_t list_candidates(const Movable* requests, int32_t count, int32_t order, int32_t* listed) noexcept nogil:
    """List the requests that an order of one stage allows, first mover first."""
    cdef int32_t k, i, found = 0
    for k in range(count):
        i = count - 1 - k if order == LCR else k
        if may_move(&requests[i], order != FCW):
            listed[found] = i
            found += 1
    if order == SR or order == LR:
        sort_by_length(requests, listed, found, 1 if order == SR else -1)
    return found


cdef int32_t take(const Movable* requests, const int32_t* listed, int32_t count, bint counts_requests, int64_t* budget,
                  int32_t* chosen) noexcept nogil:
    """Take requests until the budget is used up, the last one may exceed it; one that exceeds all of it stays."""
    cdef int32_t k, taken = 0
    cdef int64_t cost, used = 0
    for k in range(count):
        if used >= budget[0]:
            break
        cost = 1 if counts_requests else requests[listed[k]].tokens
        if cost <= budget[0]:
            chosen[taken] = listed[k]
            taken += 1
            used += cost
    budget[0] -= used
    return taken


cdef int32_t select_requests(const Selection* selection, const Movable* requests, int32_t count, int64_t kv_tokens,
                             int32_t* chosen, int32_t* scratch) noexcept nogil:
    cdef bint counts_requests = selection.rule == NUM_REQ
    cdef int64_t budget = <int64_t>(selection.value * kv_tokens if selection.rule == RATIO else selection.value)
    cdef int32_t listed, taken
    if counts_requests and budget == -1:
        return list_all(requests, count, chosen)
    listed = list_candidates(requests, count, FCW if selection.order == FCWSR else selection.order, scratch)
    taken = take(requests, scratch, listed, counts_requests, &budget, chosen)
    if selection.order == FCWSR:
        listed = list_candidates(requests, count, SR, scratch)
        taken += take(requests, scratch, listed, counts_requests, &budget, chosen + taken)
    return taken


def selected_requests(rule, order, value, requests, kv_tokens):
    """Return the indexes of the requests that move (for Python and tests).

    requests : (row, tokens, outputs, is_running, is_moving) of each.
    """
    cdef Selection selection
    cdef int32_t[:, ::1] out = np.zeros((2, len(requests) + 1), np.int32)
    cdef const Movable[::1] rows = np.array([*map(tuple, requests), (0,) * 5], MOVABLE)
    selection.rule, selection.order, selection.value = RULE_NAMES.index(rule), ORDER_NAMES.index(order), value
    count = select_requests(&selection, &rows[0], <int32_t>len(requests), kv_tokens, &out[0, 0], &out[1, 0])
    return [int(each) for each in out[0, :count]]
