"""Requests that come when others let them: sessions, graphs of requests, closed loops."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.row_heap cimport RowHeap, TimedRow, pop_row
from simulator.core.row_list cimport RowList
from simulator.core.wake_heap cimport WakeHeap
from simulator.domain.request cimport PENDING, Demand, Request
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.sources.base cimport Source


cdef enum When:                 # a request lets another one go
    ON_COMPLETION
    ON_DISPATCH
    ON_ANY_END


cdef struct Group:              # of plays that share slots; see workload/script.py
    int64_t begins_ns           # NEVER_NS: not known yet
    int64_t ends_ns             # nobody comes at or after this instant
    int64_t num_plays           # in `plays`, like the next
    int64_t num_fresh           # of these, those that have not begun: the last ones
    int64_t num_closed          # that never will
    int64_t* plays              # [num_plays]
    const int64_t* opens_ns     # [num_slots]
    const int64_t* closes_ns    # [num_slots]; NULL: never
    const int64_t* reopens      # [num_slots] 1: it is the slot before, which opens once more; NULL: none is
    int32_t num_slots           # 0: there is no limit
    bint holds_play             # a slot is held until its play is over, else by each request
    int32_t after               # index of the group that is over before this one begins; -1: there is none
    bint after_dispatch         # that one is over when its last request has come, not when all have ended
    bint is_followed            # another group begins when this one is over
    int64_t interval_ns         # from its end, or from 0, to the beginning
    int64_t lasts_ns            # those that follow it begin no earlier than so long after its beginning
    int64_t client_delay_ns     # from an end to whatever the client does because of it
    int64_t length_ns           # from the beginning to the end; NEVER_NS: it has none
    int64_t cancel_ns           # from the beginning to when all that still runs is given up; NEVER_NS: nothing is
    bint is_dry                 # a slot was free before the end, and nobody was left
    int64_t num_held            # slots that somebody holds
    int64_t num_unsent          # requests that have not come
    int64_t num_running         # that have come and not ended
    int32_t most_going          # plays that its slot serves by turns; 0: a slot is for whoever is ready
    int32_t num_going           # of these, those that have begun and are not over
    int64_t num_to_send         # requests that may still come by that slot
    bint leaves                 # it closes when it finds no play to begin
    bint stops_all              # with it, all such slots do
    bint is_closed
    RowHeap slots               # those that are free: from when on
    RowHeap waiting             # requests of plays that have begun, which need a slot: since when they are ready


cdef struct Out:                # an edge, from the request that lets another one go
    int64_t delay_ns
    int32_t target
    int8_t when                 # one of When


@cython.final
cdef class Scripted(Source):
    cdef Request* _requests             # borrowed from the workload, like the next
    cdef Demand* _demands
    cdef object _owners                 # what the pointers borrow from
    cdef RowList _given_up              # requests whose followers are to be given up, too
    cdef Recorder _recorder
    cdef object _script
    cdef Group* _groups                 # [_num_groups]
    cdef int32_t _num_groups
    cdef WakeHeap _wakes                # [group] when a request of it comes next that needs a slot, or begins a play
    cdef RowHeap _timed                 # requests that need no slot: when they are ready
    cdef const int64_t* _begins         # [play + 1] the first row of each play; NULL: each row is a play
    cdef const int64_t* _start_ns       # [play]
    cdef const int64_t* _offset_ns      # [row]; NULL: all 0
    cdef const int64_t* _rest_ns        # [row]; NULL: all 0
    cdef const double* _rest_share      # [row] of its duration, by which that is shorter; NULL: all 0
    cdef int64_t* _spare                # [_num_spare] plays that wait for a slot that serves plays by turns
    cdef int64_t _num_spare
    cdef int64_t _next_spare
    cdef int32_t _num_taking            # such slots that are not closed
    cdef const int64_t* _timeout_ns     # [row]; NULL: nobody wants the answer by some time
    cdef bint _waits_on                 # who did not get it by then does not give up
    cdef const int64_t* _last_token_ns  # [row]
    cdef int64_t* _scheduled_ns         # [row] when each was ready
    cdef int32_t* _group_of             # [play]; NULL: there is one group
    cdef int32_t* _slot_of              # [play], or [row] where requests hold slots; NULL: there are none that close
    cdef int32_t* _play_of              # [row]; NULL: each row is a play
    cdef int32_t* _num_live             # [play] requests that have neither ended nor been given up
    cdef int32_t* _num_running          # [play]
    cdef int64_t* _begun_ns             # [play]
    cdef int32_t* _num_waits            # [row] requests that it still waits for; NULL: nobody waits
    cdef int64_t* _ready_ns             # [row] known so far; NULL where each row is a play
    cdef int64_t* _out_begins           # [row + 1] into _outs
    cdef Out* _outs
    cdef bint _any_ends                 # some of these are let go however their source ended
    cdef int64_t _idle_cap_ns           # NEVER_NS: none
    cdef bint _goes_on_after_rejection
    cdef bint _from_engine

    cdef inline int32_t _group_index(self, int32_t play) noexcept nogil:
        return self._group_of[play] if self._group_of != NULL else 0

    cdef inline int32_t _play(self, int32_t row) noexcept nogil:
        return self._play_of[row] if self._play_of != NULL else row

    cdef inline bint _is_unsent(self, int64_t row) noexcept nogil:
        return self._requests[row].status == PENDING and self._requests[row].arrival_ns < 0

    # The request waits for no other any more.
    cdef inline bint _is_free(self, int64_t row) noexcept nogil:
        return self._num_waits == NULL or self._num_waits[row] == 0

    # Note when the next request comes: of all; of those of a group for which a slot is needed.
    cdef int _look(self) except -1 nogil
    cdef int _note(self, int32_t index, int64_t now_ns) except -1 nogil

    # A slot is free: from a time on, or from when it opens next; it may have closed for good.
    cdef int _push_slot(self, Group* group, int32_t slot, int64_t time_ns) except -1 nogil

    # A group begins; if it is over, those begin that follow it; nobody comes by its slots any more.
    cdef int _begin_group(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int64_t _keep_live(self, int64_t* plays, int64_t count) noexcept nogil
    cdef int _end_group(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int _close(self, int32_t index, int64_t now_ns) except -1 nogil

    # Is it known when the next one of a group comes, or that nobody will?
    cdef bint _can_come(self, const Group* group) noexcept nogil

    # The request with which a play begins.
    cdef int32_t _first_row(self, int64_t play) noexcept nogil

    cdef inline int32_t _begin_of(self, int64_t play) noexcept nogil:
        return <int32_t>play if self._begins == NULL else self._first_row(play)

    # Who is next for a slot, and since when; NEVER_NS: nobody.
    cdef TimedRow _candidate_by_turns(self, const Group* group, TimedRow waiting) noexcept nogil

    cdef inline TimedRow _candidate(self, Group* group) noexcept nogil:
        cdef TimedRow waiting, fresh
        cdef int64_t play
        while group.waiting.size > 0 and not (
                self._is_unsent(group.waiting.entries[0].row)
                and self._ready_ns[group.waiting.entries[0].row] == group.waiting.entries[0].time_ns):
            pop_row(&group.waiting)
        waiting.time_ns, waiting.row = NEVER_NS, -1
        if group.waiting.size > 0:
            waiting = group.waiting.entries[0]
        if group.most_going > 0:
            return self._candidate_by_turns(group, waiting)
        if group.num_fresh == 0:
            return waiting
        play = group.plays[group.num_plays - group.num_fresh]
        fresh.time_ns, fresh.row = group.begins_ns + self._start_ns[play], self._begin_of(play)
        if waiting.time_ns < fresh.time_ns or (waiting.time_ns == fresh.time_ns and waiting.row < fresh.row):
            return waiting
        return fresh

    # Slots that serve plays by turns: one takes a spare play, or the last; has served a request; lets nobody come.
    cdef int _take_spare(self, int32_t index, int32_t play) except -1 nogil
    cdef int _tell_there_is_none(self, int32_t index, int64_t now_ns) except -1 nogil
    cdef int _end_turn(self, int32_t index, int32_t row, int32_t play, int64_t now_ns) except -1 nogil
    cdef int _leave(self, int32_t index, int64_t at_ns, int64_t now_ns) except -1 nogil
    cdef int _close_turns(self, Group* group) except -1 nogil

    # It may take a play. It leaves, since there is none.
    cdef inline bint _has_room(self, const Group* group) noexcept nogil:
        return group.num_going + group.num_fresh < group.most_going and not group.is_closed

    cdef inline bint _finds_none(self, const Group* group) noexcept nogil:
        return group.leaves and self._has_room(group) and self._next_spare == self._num_spare

    # A request comes, by a slot or without; its play begins with it.
    cdef int _send_by_slot(self, int32_t index, TimedRow entry, int64_t now_ns) except -1 nogil
    cdef int _send(self, int32_t row, int64_t ready_ns, int64_t now_ns) except -1 nogil
    cdef int _begin_play(self, int32_t play, int32_t first, int64_t now_ns) except -1 nogil
    cdef void _set_deadlines(self, int32_t row, const Group* group, int64_t now_ns) noexcept nogil

    # A request has come, or ended: for those that wait for it. One waits for nobody any more.
    cdef int _let_go(self, int32_t row, int64_t now_ns, int8_t when) except -1 nogil
    cdef int _make_ready(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _push_ready(self, int32_t row) except -1 nogil

    # A request has ended: its slot; what its play waits for while nothing of it runs.
    cdef int64_t _shorter_ns(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef int _free_slot(self, Group* group, int32_t row, int32_t play, int64_t now_ns) except -1 nogil
    cdef int _hurry(self, int32_t play, int64_t now_ns) except -1 nogil

    # A request is not sent, and neither are those that wait for it.
    cdef int _give_up(self, int32_t row) except -1 nogil
    cdef int _note_given_up(self, int32_t row) except -1 nogil
    cdef int _give_up_followers(self, int32_t row) except -1 nogil
