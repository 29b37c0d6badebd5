"""Requests released by other requests: sessions, graphs of requests, closed loops."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.heap cimport Keyed, RowHeap, pop_row
from simulator.core.row_list cimport RowList
from simulator.core.wake_heap cimport WakeHeap
from simulator.domain.request cimport PENDING, Demand, Request
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.sources.base cimport Source


cdef enum When:                 # event of a request that releases another one
    ON_COMPLETION
    ON_DISPATCH
    ON_ANY_END


cdef struct Group:              # plays that share slots; see workload/script.py
    int64_t begins_ns           # NEVER_NS: not known yet
    int64_t ends_ns             # no request of the group arrives at or after this instant
    int64_t num_plays           # number of plays in `plays`
    int64_t num_fresh           # plays that have not begun: the last ones in `plays`
    int64_t num_closed          # plays that will never begin, in `plays`
    int64_t* plays              # [num_plays]
    const int64_t* opens_ns     # [num_slots]
    const int64_t* closes_ns    # [num_slots]; NULL: never
    const int64_t* reopens      # [num_slots] 1: no new slot: the slot before opens once more; NULL: none reopens
    int32_t num_slots           # 0: no limit
    bint holds_play             # a play holds its slot until it is over; else each request holds one
    int32_t after               # index of the group that must be over before this one begins; -1: none
    bint after_dispatch         # that group is over when its last request has arrived, not when all have ended
    bint is_followed            # another group begins when this one is over
    int64_t interval_ns         # from the end of that group, or from 0, to the beginning
    int64_t lasts_ns            # following groups begin no earlier than this time after its beginning
    int64_t client_delay_ns     # from an end to the client's reaction to it
    int64_t length_ns           # from the beginning to the end; NEVER_NS: no end
    int64_t cancel_ns           # from the beginning to when all running requests are given up; NEVER_NS: never
    bint is_dry                 # a slot was free before the end, and no play was left
    int64_t num_held            # number of slots in use
    int64_t num_unsent          # number of requests that have not arrived
    int64_t num_running         # number of requests that have arrived and not ended
    int32_t most_going          # plays that its slot serves alternately (Turns); 0: slots take any ready play
    int32_t num_going           # of `most_going`: plays that have begun and are not over
    int64_t num_to_send         # requests that may still be released by that slot
    bint leaves                 # the slot closes when it finds no play to begin
    bint stops_all              # its end closes all slots with Turns
    bint is_closed
    RowHeap slots               # free slots: when each becomes free
    RowHeap waiting             # requests of begun plays that need a slot: since when each is ready


cdef struct Out:                # an edge of a request that releases others
    int64_t delay_ns
    int32_t target
    int8_t when                 # When


@cython.final
cdef class Scripted(Source):
    cdef Request* _requests             # borrowed from the workload
    cdef Demand* _demands               # borrowed from the workload
    cdef object _owners                 # owners of the borrowed pointers
    cdef RowList _given_up              # stack of requests with followers that must be given up, too
    cdef Recorder _recorder
    cdef object _script
    cdef Group* _groups                 # [_num_groups]
    cdef int32_t _num_groups
    cdef WakeHeap _wakes                # [group] when its next request arrives that needs a slot, or begins a play
    cdef RowHeap _timed                 # requests that need no slot: when each is ready
    cdef const int64_t* _begins         # [play + 1] the first row of each play; NULL: each row is a play
    cdef const int64_t* _start_ns       # [play]
    cdef const int64_t* _offset_ns      # [row]; NULL: all 0
    cdef const int64_t* _rest_ns        # [row]; NULL: all 0
    cdef const double* _rest_share      # [row] share of a request's duration that shortens _rest_ns; NULL: all 0
    cdef int64_t* _spare                # [_num_spare] plays that wait for a slot with Turns
    cdef int64_t _num_spare
    cdef int64_t _next_spare
    cdef int32_t _num_taking            # slots with Turns that are not closed
    cdef const int64_t* _timeout_ns     # [row] client's time limit; NULL: no client has one
    cdef bint _waits_on                 # clients do not give up at the limit: the answer is late
    cdef const int64_t* _last_token_ns  # [row]
    cdef int64_t* _scheduled_ns         # [row] when each was ready
    cdef int32_t* _group_of             # [play]; NULL: there is one group
    cdef int32_t* _slot_of              # [play], or [row] where requests hold slots; NULL: no slot ever closes
    cdef int32_t* _play_of              # [row]; NULL: each row is a play
    cdef int32_t* _num_live             # [play] requests that have neither ended nor been given up
    cdef int32_t* _num_running          # [play]
    cdef int64_t* _begun_ns             # [play]
    cdef int32_t* _num_waits            # [row] requests that it still waits for; NULL: no request waits
    cdef int64_t* _ready_ns             # [row] as known so far; NULL where each row is a play
    cdef int64_t* _out_begins           # [row + 1] into _outs
    cdef Out* _outs
    cdef bint _any_ends                 # some edge releases its target after any end of the source
    cdef int64_t _idle_cap_ns           # NEVER_NS: none
    cdef bint _goes_on_after_rejection
    cdef bint _from_engine

    cdef inline int32_t _group_index(self, int32_t play) noexcept nogil:
        return self._group_of[play] if self._group_of != NULL else 0

    cdef inline int32_t _play(self, int32_t row) noexcept nogil:
        return self._play_of[row] if self._play_of != NULL else row

    cdef inline bint _is_unsent(self, int64_t row) noexcept nogil:
        return self._requests[row].status == PENDING and self._requests[row].arrival_ns < 0

    # Return whether the request waits for no other any more.
    cdef inline bint _is_free(self, int64_t row) noexcept nogil:
        return self._num_waits == NULL or self._num_waits[row] == 0

    # _look: set next_ns. _note: set when the next request of a group arrives that needs a slot.
    cdef int _look(self) except -1 nogil
    cdef int _note(self, int32_t index, int64_t now_ns) except -1 nogil

    # A slot is free: from `time_ns`, or from when it opens next; unless it has closed for good.
    cdef int _push_slot(self, Group* group, int32_t slot, int64_t time_ns) except -1 nogil

    # Begin a group; _end_group: if it is over, begin its followers; _close: give up requests that wait for its slots.
    cdef int _begin_group(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int64_t _keep_live(self, int64_t* plays, int64_t count) noexcept nogil
    cdef int _end_group(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int _close(self, int32_t index, int64_t now_ns) except -1 nogil

    # Return whether the time of a group's next arrival is known, or that it has none.
    cdef bint _can_come(self, const Group* group) noexcept nogil

    # Return the first request of a play.
    cdef int32_t _first_row(self, int64_t play) noexcept nogil

    cdef inline int32_t _begin_of(self, int64_t play) noexcept nogil:
        return <int32_t>play if self._begins == NULL else self._first_row(play)

    # Return the next request for a slot, and since when it is ready; NEVER_NS: none.
    cdef Keyed _candidate_by_turns(self, const Group* group, Keyed waiting) noexcept nogil

    cdef inline Keyed _candidate(self, Group* group) noexcept nogil:
        cdef Keyed waiting, fresh
        cdef int64_t play
        while group.waiting.size > 0 and not (
                self._is_unsent(group.waiting.entries[0].number)
                and self._ready_ns[group.waiting.entries[0].number] == group.waiting.entries[0].key):
            pop_row(&group.waiting)
        waiting.key, waiting.number = NEVER_NS, -1
        if group.waiting.size > 0:
            waiting = group.waiting.entries[0]
        if group.most_going > 0:
            return self._candidate_by_turns(group, waiting)
        if group.num_fresh == 0:
            return waiting
        play = group.plays[group.num_plays - group.num_fresh]
        fresh.key, fresh.number = group.begins_ns + self._start_ns[play], self._begin_of(play)
        if waiting.key < fresh.key or (waiting.key == fresh.key and waiting.number < fresh.number):
            return waiting
        return fresh

    # Slots with Turns: take a spare play; no spare play is left; a request was served; release no more requests.
    cdef int _take_spare(self, int32_t index, int32_t play) except -1 nogil
    cdef int _tell_there_is_none(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int _end_turn(self, int32_t index, int32_t row, int32_t play, int64_t now_ns) except -1 nogil
    cdef int _leave(self, int32_t index, int64_t at_ns, int64_t now_ns) except -1 nogil
    cdef int _close_turns(self, Group* group) except -1 nogil

    # _has_room: the slot may take a play. _finds_none: it closes, since no play is left.
    cdef inline bint _has_room(self, const Group* group) noexcept nogil:
        return group.num_going + group.num_fresh < group.most_going and not group.is_closed

    cdef inline bint _finds_none(self, const Group* group) noexcept nogil:
        return group.leaves and self._has_room(group) and self._next_spare == self._num_spare

    # A request arrives, by a slot or without; its play may begin with it.
    cdef int _send_by_slot(self, int32_t index, Keyed entry, int64_t now_ns) except -1 nogil
    cdef int _send(self, int32_t row, int64_t ready_ns, int64_t now_ns) except -1 nogil
    cdef int _begin_play(self, int32_t play, int32_t first, int64_t now_ns) except -1 nogil
    cdef void _set_deadlines(self, int32_t row, const Group* group, int64_t now_ns) noexcept nogil

    # Release the requests that wait for a request that arrived or ended. _make_ready: a request waits for no other.
    cdef int _let_go(self, int32_t row, int64_t now_ns, int8_t when) except -1 nogil
    cdef int _make_ready(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _push_ready(self, int32_t row) except -1 nogil

    # A request has ended: free its slot; shorten the time that its play waits with nothing running.
    cdef int64_t _shorter_ns(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef int _free_slot(self, Group* group, int32_t row, int32_t play, int64_t now_ns) except -1 nogil
    cdef int _hurry(self, int32_t play, int64_t now_ns) except -1 nogil

    # Mark a request as not sent, and all that wait for it.
    cdef int _give_up(self, int32_t row) except -1 nogil
    cdef int _note_given_up(self, int32_t row) except -1 nogil
    cdef int _give_up_followers(self, int32_t row) except -1 nogil
