"""Requests released by other requests: sessions, graphs of requests, closed loops.

The script is compiled to counts and heaps, so that each request costs O(log of requests waiting). A request that
was put off, or given up, stays in its heap until it gets to the top: there its time and status show that it is void.
"""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.heap cimport first_ns, push_row
from simulator.core.row_list cimport add_row
from simulator.domain.request cimport COMPLETED, DROPPED, NOT_SENT, REJECTED, TIMED_OUT

import numpy as np

cdef enum:
    NO_TIME_NS = -1             # records.NEVER_NS; in a timeout: none, see workload/limits.py


cdef void* array_of(int64_t count, size_t size) except NULL:
    cdef void* array = calloc(max(count, <int64_t>1), size)
    if array == NULL:
        raise MemoryError()
    return array


cdef int64_t* copied(array, list owners) except? NULL:
    """Return a pointer to a copy of an int64 array; NULL: it is empty."""
    cdef int64_t[::1] values = np.array(array, dtype=np.int64)
    owners.append(values)
    return &values[0] if len(values) else NULL


cdef const int64_t* borrowed(array, list owners) except? NULL:
    """Return a pointer to an int64 array; NULL: there is none."""
    cdef const int64_t[::1] values
    if array is None or len(array) == 0:
        return NULL
    values = np.ascontiguousarray(array, dtype=np.int64)
    owners.append(values)
    return &values[0]


cdef const double* borrowed_floats(array, list owners) except? NULL:
    """Return a pointer to a float64 array; NULL: there is none."""
    cdef const double[::1] values
    if array is None or len(array) == 0:
        return NULL
    values = np.ascontiguousarray(array, dtype=np.float64)
    owners.append(values)
    return &values[0]


@cython.final
cdef class Scripted(Source):
    """Releases the requests of a workload that has a `workload.script.Script`.

    workload : its `requests`, `demands` and `scheduled_ns` are written to.
    recorder : counts requests that are not sent as finished.
    last_tokens : int64 array, when the last token of each request left the engine.
    """

    def __init__(self, workload, Recorder recorder, last_tokens):
        cdef Request[::1] requests = workload.requests
        cdef Demand[::1] demands = workload.demands
        cdef int64_t[::1] scheduled_ns = workload.scheduled_ns
        script = workload.script
        owners = [workload]
        self._owners, self._script, self._recorder = owners, script, recorder
        self._requests, self._demands, self._scheduled_ns = &requests[0], &demands[0], &scheduled_ns[0]
        self._last_token_ns = borrowed(last_tokens, owners)
        self.num_left = len(requests)
        self._begins = borrowed(script.play_begins, owners)
        self._start_ns = borrowed(script.start_ns, owners)
        self._offset_ns = borrowed(script.offset_ns, owners)
        self._rest_ns = borrowed(script.rest_ns, owners)
        self._rest_share = borrowed_floats(script.rest_share, owners)
        self._num_spare = 0 if script.spare is None else len(script.spare)
        self._spare = copied(script.spare if self._num_spare else (), owners)
        self._timeout_ns = borrowed(script.timeout_ns, owners)
        self._idle_cap_ns = NEVER_NS if script.idle_cap_ns is None else script.idle_cap_ns
        self._waits_on = script.waits_on
        self._goes_on_after_rejection, self._from_engine = script.goes_on_after_rejection, script.from_engine
        self._wakes = WakeHeap(len(script.groups))
        self._lay_out_plays(len(requests))
        self._lay_out_groups(owners)
        if script.edges is not None:
            self._lay_out_edges(script.edges, len(requests))

    def _lay_out_plays(self, int64_t num_rows):
        cdef int64_t num_plays = len(self._script.start_ns), play, row
        if self._begins == NULL:
            return
        self._play_of = <int32_t*>array_of(num_rows, sizeof(int32_t))
        self._ready_ns = <int64_t*>array_of(num_rows, sizeof(int64_t))
        self._num_live = <int32_t*>array_of(num_plays, sizeof(int32_t))
        self._num_running = <int32_t*>array_of(num_plays, sizeof(int32_t))
        self._begun_ns = <int64_t*>array_of(num_plays, sizeof(int64_t))
        for play in range(num_plays):
            self._num_live[play] = <int32_t>(self._begins[play + 1] - self._begins[play])
            self._begun_ns[play] = NEVER_NS
            for row in range(self._begins[play], self._begins[play + 1]):
                self._play_of[row] = <int32_t>play

    def _lay_out_groups(self, list owners):
        cdef Group* group
        cdef int64_t i
        cdef int32_t index
        groups, num_plays = self._script.groups, len(self._script.start_ns)
        followed = {each.after for each in groups}
        taking = -1         # the first group that takes spare plays: they count as its own until another takes them
        self._groups = <Group*>array_of(len(groups), sizeof(Group))
        self._num_groups = <int32_t>len(groups)
        if len(groups) > 1:
            self._group_of = <int32_t*>array_of(num_plays, sizeof(int32_t))
        if any(each.slots is not None and each.slots.closes_ns is not None for each in groups):
            self._slot_of = <int32_t*>array_of(self.num_left, sizeof(int32_t))
        for index in range(self._num_groups):
            given, group = groups[index], &self._groups[index]
            group.begins_ns, group.ends_ns = NEVER_NS, NEVER_NS
            group.num_plays = group.num_fresh = len(given.plays)
            group.plays, group.holds_play = copied(given.plays, owners), given.holds_play
            group.is_followed = index in followed
            group.after, group.after_dispatch, group.interval_ns = given.after, given.after_dispatch, given.interval_ns
            group.lasts_ns = given.lasts_ns
            group.client_delay_ns = (
                self._script.client_delay_ns if given.client_delay_ns is None else given.client_delay_ns)
            group.length_ns = NEVER_NS if given.ends_ns is None else given.ends_ns
            group.cancel_ns = NEVER_NS if given.cancel_ns is None else given.cancel_ns
            if given.slots is not None:
                group.num_slots, group.opens_ns = len(given.slots.opens_ns), borrowed(given.slots.opens_ns, owners)
                group.closes_ns = borrowed(given.slots.closes_ns, owners)
                group.reopens = borrowed(given.slots.reopens, owners)
            if given.turns is not None:
                group.most_going, group.leaves = given.turns.most_plays, given.turns.leaves
                group.stops_all = given.turns.stops_all
                group.num_to_send = NEVER_NS if given.turns.most_requests is None else given.turns.most_requests
                self._num_taking += 1
                taking = index if taking < 0 else taking
            for i in range(group.num_plays):
                self._count_play(index, group.plays[i])
        for i in range(self._num_spare):
            self._count_play(taking, self._spare[i])

    def _count_play(self, int32_t index, int64_t play):
        self._groups[index].num_unsent += 1 if self._begins == NULL else self._num_live[play]
        if self._group_of != NULL:
            self._group_of[play] = index

    def _lay_out_edges(self, edges, int64_t num_rows):
        cdef const int64_t[::1] sources, targets, delays_ns
        cdef const int8_t[::1] when
        cdef int64_t i
        order = np.argsort(edges.sources, kind="stable")
        sources, targets, delays_ns = (
            np.ascontiguousarray(each[order], np.int64) for each in (edges.sources, edges.targets, edges.delays_ns))
        kinds = np.where(edges.from_dispatch, ON_DISPATCH, ON_COMPLETION)
        self._any_ends = edges.from_any_end is not None
        if self._any_ends:
            kinds = np.where(edges.from_any_end, ON_ANY_END, kinds)
        when = kinds[order].astype(np.int8)
        self._num_waits = <int32_t*>array_of(num_rows, sizeof(int32_t))
        self._outs = <Out*>array_of(len(sources), sizeof(Out))
        self._out_begins = <int64_t*>array_of(num_rows + 1, sizeof(int64_t))
        for i in range(len(sources)):
            self._outs[i].target, self._outs[i].delay_ns = <int32_t>targets[i], delays_ns[i]
            self._outs[i].when = when[i]
            self._num_waits[targets[i]] += 1
            self._out_begins[sources[i] + 1] += 1
        for i in range(num_rows):
            self._out_begins[i + 1] += self._out_begins[i]

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._num_groups):
            free(self._groups[i].slots.entries)
            free(self._groups[i].waiting.entries)
        free(self._groups)
        free(self._timed.entries)
        free(self._group_of)
        free(self._slot_of)
        free(self._play_of)
        free(self._num_live)
        free(self._num_running)
        free(self._begun_ns)
        free(self._num_waits)
        free(self._ready_ns)
        free(self._out_begins)
        free(self._outs)
        free(self._given_up.rows)

    def used(self):
        """Return for each group the number of plays begun, and whether there were too few."""
        return [(self._groups[i].num_plays - self._groups[i].num_fresh - self._groups[i].num_closed,
                 bool(self._groups[i].is_dry)) for i in range(self._num_groups)]

    cdef int start(self) except -1 nogil:
        cdef int32_t index
        for index in range(self._num_groups):
            if self._groups[index].after < 0:
                self._begin_group(index, 0)
        return self._look()

    # ---- groups and their slots

    cdef int _begin_group(self, int32_t index, int64_t now_ns) except -1 nogil:
        cdef Group* group = &self._groups[index]
        cdef int32_t i
        group.begins_ns = now_ns + group.interval_ns
        group.ends_ns = NEVER_NS if group.length_ns == NEVER_NS else group.begins_ns + group.length_ns
        group.num_fresh = self._keep_live(group.plays, group.num_plays)
        if group.most_going > 0 and self._num_spare > 0:
            self._next_spare = self._num_spare - self._keep_live(
                self._spare + self._next_spare, self._num_spare - self._next_spare)
        for i in range(group.num_slots):
            if group.reopens == NULL or not group.reopens[i]:
                self._push_slot(group, i, group.begins_ns + group.opens_ns[i])
        self._note(index, now_ns)
        return self._end_group(index, group.begins_ns)          # it may have no request at all

    cdef int _push_slot(self, Group* group, int32_t slot, int64_t time_ns) except -1 nogil:
        while group.closes_ns != NULL and time_ns >= group.begins_ns + group.closes_ns[slot]:
            slot += 1
            if slot == group.num_slots or group.reopens == NULL or not group.reopens[slot]:
                return 0
            time_ns = max(time_ns, group.begins_ns + group.opens_ns[slot])
        return push_row(&group.slots, time_ns, slot)

    cdef int64_t _keep_live(self, int64_t* plays, int64_t count) noexcept nogil:
        """Move plays that still have requests to the end of a list, in their order; return their number.

        A play may have none left if requests of earlier groups, on which it depends, have failed.
        """
        cdef int64_t left = count, i
        if self._num_live == NULL:
            return count
        for i in range(count - 1, -1, -1):
            if self._num_live[plays[i]] > 0:
                left -= 1
                plays[left] = plays[i]
        return count - left

    cdef int _end_group(self, int32_t index, int64_t now_ns) except -1 nogil:
        """If a group is over, begin the groups that follow it."""
        cdef const Group* group = &self._groups[index]
        cdef int32_t i
        if not group.is_followed or group.num_unsent > 0:
            return 0
        for i in range(self._num_groups):
            if (self._groups[i].after == index and self._groups[i].begins_ns == NEVER_NS
                    and (self._groups[i].after_dispatch or group.num_running == 0)):
                self._begin_group(i, max(now_ns, group.begins_ns + group.lasts_ns))
        return 0

    cdef int32_t _first_row(self, int64_t play) noexcept nogil:
        """Return the first request of a play: the one with the least offset that waits for no other."""
        cdef int64_t row, first = self._begins[play], least_ns = NEVER_NS
        for row in range(self._begins[play], self._begins[play + 1]):
            if self._is_free(row) and self._is_unsent(row):
                if self._offset_ns == NULL or self._offset_ns[row] < least_ns:
                    first, least_ns = row, 0 if self._offset_ns == NULL else self._offset_ns[row]
                if least_ns == 0:
                    break
        return <int32_t>first

    cdef Keyed _candidate_by_turns(self, const Group* group, Keyed waiting) noexcept nogil:
        """Return the next request for a slot with Turns: a play that it begins, or the request that waits longest."""
        cdef Keyed fresh
        cdef int64_t play
        if self._has_room(group) and self._next_spare < self._num_spare:
            play = self._spare[self._next_spare]
        elif group.num_fresh > 0 and group.num_going < group.most_going:
            play = group.plays[group.num_plays - group.num_fresh]
        else:
            return waiting
        fresh.key, fresh.number = group.begins_ns + self._start_ns[play], self._begin_of(play)
        return fresh

    cdef int _note(self, int32_t index, int64_t now_ns) except -1 nogil:
        """Note when the next request of a group arrives that needs a slot."""
        cdef Group* group = &self._groups[index]
        cdef Keyed next_one
        cdef int64_t time_ns = NEVER_NS
        if group.begins_ns < NEVER_NS:
            next_one = self._candidate(group)
            time_ns = next_one.key
            if time_ns == NEVER_NS and first_ns(&group.slots) < group.ends_ns:
                group.is_dry = True
            while group.num_slots > 0 and time_ns < NEVER_NS:
                time_ns = max(next_one.key, first_ns(&group.slots))
                if group.slots.size == 0 or group.closes_ns == NULL or (
                        time_ns < group.begins_ns + group.closes_ns[group.slots.entries[0].number]):
                    break
                self._push_slot(group, <int32_t>pop_row(&group.slots).number, time_ns)
            if next_one.key < NEVER_NS and time_ns >= group.ends_ns and self._can_come(group):
                self._close(index, now_ns)
                time_ns = NEVER_NS
        self._wakes.set(index, time_ns)
        return 0

    cdef bint _can_come(self, const Group* group) noexcept nogil:
        """Return whether the time of the next arrival is known, or that there is none."""
        return group.num_slots == 0 or group.slots.size > 0 or group.num_held == 0

    cdef int _close(self, int32_t index, int64_t now_ns) except -1 nogil:
        """Give up all requests that wait for a slot."""
        cdef Group* group = &self._groups[index]
        cdef int64_t play, row
        while group.waiting.size > 0:
            row = pop_row(&group.waiting).number
            if self._is_unsent(row):
                self._give_up(<int32_t>row)
        while group.num_fresh > 0:
            play = group.plays[group.num_plays - group.num_fresh]
            group.num_fresh -= 1
            group.num_closed += 1
            for row in range(play if self._begins == NULL else self._begins[play],
                             play + 1 if self._begins == NULL else self._begins[play + 1]):
                if self._is_unsent(row):
                    self._give_up(<int32_t>row)
        self._close_turns(group)
        return self._end_group(index, now_ns if group.ends_ns == NEVER_NS else max(now_ns, group.ends_ns))

    cdef int _look(self) except -1 nogil:
        """Note when the next request arrives."""
        while self._timed.size > 0 and not (
                self._is_unsent(self._timed.entries[0].number)
                and self._ready_ns[self._timed.entries[0].number] == self._timed.entries[0].key):
            pop_row(&self._timed)
        self.next_ns = min(first_ns(&self._timed), self._wakes.top_time())
        return 0

    # ---- arrivals

    cdef int32_t take(self) except -1 nogil:
        cdef int64_t now_ns = self.next_ns
        cdef Keyed timed, next_one
        cdef int32_t index = self._wakes.top_index(), row
        cdef Group* group = &self._groups[index]
        timed.key, timed.number = NEVER_NS, -1
        if first_ns(&self._timed) == now_ns:
            timed = self._timed.entries[0]
        if self._wakes.top_time() > now_ns:
            row = <int32_t>pop_row(&self._timed).number
            self._send(row, now_ns, now_ns)
        else:
            next_one = self._candidate(group)
            if timed.number >= 0 and (
                    timed.key < next_one.key or (timed.key == next_one.key and timed.number < next_one.number)):
                row = <int32_t>pop_row(&self._timed).number
                self._send(row, now_ns, now_ns)
            else:
                row = <int32_t>next_one.number
                self._send_by_slot(index, next_one, now_ns)
        self._look()
        return row

    cdef int _send_by_slot(self, int32_t index, Keyed entry, int64_t now_ns) except -1 nogil:
        cdef Group* group = &self._groups[index]
        cdef int32_t row = <int32_t>entry.number, play = self._play(row), slot
        cdef bint begins = self._begins == NULL or self._begun_ns[play] == NEVER_NS
        cdef bint takes_spare = (group.most_going > 0 and begins and self._has_room(group)
                                 and self._next_spare < self._num_spare)
        if group.num_slots > 0:
            slot = <int32_t>pop_row(&group.slots).number
            group.num_held += 1
            if self._slot_of != NULL:
                self._slot_of[self._begins[play] if group.holds_play and self._begins != NULL else row] = slot
        if not begins:
            pop_row(&group.waiting)
        elif takes_spare:
            self._take_spare(index, play)
        else:
            group.num_fresh -= 1
        if group.most_going > 0:
            group.num_going += begins
            group.num_to_send -= 1
        self._send(row, entry.key, now_ns)
        if begins and self._begins != NULL:
            self._begin_play(play, row, now_ns)
        if takes_spare and self._next_spare == self._num_spare:
            self._tell_there_is_none(index, now_ns)
        return self._note(index, now_ns)

    # ---- slots with Turns

    cdef int _take_spare(self, int32_t index, int32_t play) except -1 nogil:
        """Begin a spare play in a group."""
        cdef int32_t before = self._group_index(play)
        self._next_spare += 1
        self._groups[before].num_unsent -= self._num_live[play]
        self._groups[index].num_unsent += self._num_live[play]
        if self._group_of != NULL:
            self._group_of[play] = index
        return 0

    cdef int _tell_there_is_none(self, int32_t index, int64_t now_ns) except -1 nogil:
        """The last spare play has gone to group `index`: close the others' slots where they end with it."""
        cdef int32_t i
        for i in range(self._num_groups):
            if i == index or self._groups[i].most_going == 0:
                continue
            if self._groups[i].slots.size > 0 and self._finds_none(&self._groups[i]):
                self._leave(i, first_ns(&self._groups[i].slots), now_ns)
            self._note(i, now_ns)
        return 0

    cdef int _end_turn(self, int32_t index, int32_t row, int32_t play, int64_t now_ns) except -1 nogil:
        """A slot has served a request, and becomes free."""
        cdef Group* group = &self._groups[index]
        group.num_going -= self._num_live[play] == 0
        if group.leaves and self._requests[row].status == TIMED_OUT:
            return self._leave(index, now_ns, now_ns)
        if group.num_to_send == 0 or self._finds_none(group):
            return self._leave(index, first_ns(&group.slots), now_ns)
        return 0

    cdef int _leave(self, int32_t index, int64_t at_ns, int64_t now_ns) except -1 nogil:
        """Release no request by the slot of a group from an instant on, nor by other such slots if `stops_all`."""
        cdef int32_t i
        self._groups[index].ends_ns = min(self._groups[index].ends_ns, at_ns)
        if not self._groups[index].stops_all:
            return 0
        for i in range(self._num_groups):
            if self._groups[i].most_going > 0 and self._groups[i].ends_ns > at_ns:
                self._groups[i].ends_ns = at_ns
                self._note(i, now_ns)
        return 0

    cdef int _close_turns(self, Group* group) except -1 nogil:
        """Close the slot of a group; with the last such slot, spare plays are given up."""
        cdef int64_t row
        if group.most_going == 0 or group.is_closed:
            return 0
        group.is_closed = True
        self._num_taking -= 1
        while self._num_taking == 0 and self._next_spare < self._num_spare:
            for row in range(self._begins[self._spare[self._next_spare]],
                             self._begins[self._spare[self._next_spare] + 1]):
                if self._is_unsent(row):
                    self._give_up(<int32_t>row)
            self._next_spare += 1
        return 0

    # ---- an arrival

    cdef int _begin_play(self, int32_t play, int32_t first, int64_t now_ns) except -1 nogil:
        cdef int64_t row
        self._begun_ns[play] = now_ns
        for row in range(self._begins[play], self._begins[play + 1]):
            if row != first and self._is_free(row):
                self._make_ready(<int32_t>row, now_ns)
        return 0

    cdef int _send(self, int32_t row, int64_t ready_ns, int64_t now_ns) except -1 nogil:
        cdef int32_t play = self._play(row)
        cdef Group* group = &self._groups[self._group_index(play)]
        self._requests[row].arrival_ns = now_ns
        self._scheduled_ns[row] = ready_ns
        self._set_deadlines(row, group, now_ns)
        self.num_left -= 1
        group.num_unsent -= 1
        group.num_running += 1
        if self._play_of != NULL:
            self._num_running[play] += 1
        self._let_go(row, now_ns, ON_DISPATCH)
        return self._end_group(self._group_index(play), now_ns)

    cdef void _set_deadlines(self, int32_t row, const Group* group, int64_t now_ns) noexcept nogil:
        cdef int64_t deadline_ns = NEVER_NS, due_ns = NO_TIME_NS
        if group.cancel_ns < NEVER_NS:
            deadline_ns = group.begins_ns + min(group.cancel_ns, NEVER_NS - group.begins_ns)
        if self._timeout_ns != NULL and self._timeout_ns[row] >= 0:
            due_ns = now_ns + min(self._timeout_ns[row], NEVER_NS - now_ns)
            if not self._waits_on and due_ns < deadline_ns:
                deadline_ns = due_ns
        self._demands[row].due_ns = due_ns
        self._demands[row].deadline_ns = NO_TIME_NS if deadline_ns == NEVER_NS else deadline_ns

    cdef int _let_go(self, int32_t row, int64_t now_ns, int8_t when) except -1 nogil:
        """Release the requests that wait for a request that arrived or ended."""
        cdef int64_t i
        cdef int32_t target
        if self._outs == NULL:
            return 0
        for i in range(self._out_begins[row], self._out_begins[row + 1]):
            target = self._outs[i].target
            if self._outs[i].when == when and self._is_unsent(target):
                self._ready_ns[target] = max(self._ready_ns[target], now_ns + self._outs[i].delay_ns)
                self._num_waits[target] -= 1
                if self._num_waits[target] == 0 and self._begun_ns[self._play(target)] < NEVER_NS:
                    self._make_ready(target, now_ns)
        return 0

    cdef int _make_ready(self, int32_t row, int64_t now_ns) except -1 nogil:
        """A request waits for no other any more."""
        cdef int32_t play = self._play(row), index = self._group_index(play)
        cdef Group* group = &self._groups[index]
        cdef int64_t offset_ns = 0 if self._offset_ns == NULL else self._offset_ns[row]
        cdef int64_t ready_ns = max(max(self._ready_ns[row], self._begun_ns[play] + offset_ns), now_ns)
        self._ready_ns[row] = ready_ns
        if ready_ns >= group.ends_ns:
            return self._give_up(row)
        return self._push_ready(row)

    cdef int _push_ready(self, int32_t row) except -1 nogil:
        cdef Group* group = &self._groups[self._group_index(self._play(row))]
        if group.num_slots == 0 or group.holds_play:
            return push_row(&self._timed, self._ready_ns[row], row)
        return push_row(&group.waiting, self._ready_ns[row], row)

    # ---- ends

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        cdef const Request* request = &self._requests[row]
        cdef int32_t play = self._play(row), index = self._group_index(play)
        cdef Group* group = &self._groups[index]
        cdef bint is_refused = request.status == REJECTED or request.status == DROPPED
        cdef int64_t seen_ns = now_ns
        if request.status == COMPLETED:     # a scheduler may report an iteration's tokens at its begin
            seen_ns = max(now_ns, self._last_token_ns[row] if self._from_engine else request.completed_ns)
        seen_ns += group.client_delay_ns
        group.num_running -= 1
        if self._play_of != NULL:
            self._num_running[play] -= 1
            self._num_live[play] -= 1
        if self._any_ends:
            self._let_go(row, seen_ns, ON_ANY_END)
        if request.status == COMPLETED or (is_refused and self._goes_on_after_rejection):
            self._let_go(row, seen_ns, ON_COMPLETION)
        else:
            self._give_up_followers(row)
        self._free_slot(group, row, play, seen_ns)
        if group.most_going > 0:
            self._end_turn(index, row, play, seen_ns)
        if self._idle_cap_ns < NEVER_NS and self._play_of != NULL and self._num_running[play] == 0:
            self._hurry(play, seen_ns)
        self._end_group(index, seen_ns)
        self._note(index, seen_ns)
        return self._look()

    cdef int _free_slot(self, Group* group, int32_t row, int32_t play, int64_t now_ns) except -1 nogil:
        cdef int64_t free_ns = now_ns + (0 if self._rest_ns == NULL else self._rest_ns[row])
        cdef int64_t holder = row
        if self._rest_share != NULL:
            free_ns -= self._shorter_ns(row, now_ns)
        if group.num_slots == 0:
            return 0
        if group.holds_play and self._begins != NULL:
            if self._num_live[play] > 0:
                return 0
            holder = self._begins[play]
        group.num_held -= 1
        return self._push_slot(group, self._slot_of[holder] if self._slot_of != NULL else 0, free_ns)

    cdef int64_t _shorter_ns(self, int32_t row, int64_t now_ns) noexcept nogil:
        """Return by how much the request's duration shortens the pause of its slot."""
        cdef int64_t rest_ns = 0 if self._rest_ns == NULL else self._rest_ns[row]
        cdef double less_ns = self._rest_share[row] * <double>(now_ns - self._requests[row].arrival_ns)
        return rest_ns if less_ns >= <double>rest_ns else round_half_up(less_ns)

    cdef int _give_up(self, int32_t row) except -1 nogil:
        """Mark a request, and all that wait for it, as not sent."""
        self._note_given_up(row)
        return self._give_up_followers(row)

    cdef int _note_given_up(self, int32_t row) except -1 nogil:
        cdef int32_t play = self._play(row)
        self._requests[row].status = NOT_SENT
        self._groups[self._group_index(play)].num_unsent -= 1
        self._recorder.finished += 1
        self.num_left -= 1
        if self._play_of != NULL:
            self._num_live[play] -= 1
        return 0

    cdef int _give_up_followers(self, int32_t row) except -1 nogil:
        cdef int64_t i
        cdef int32_t target
        if self._outs == NULL:
            return 0
        add_row(&self._given_up, row)
        while self._given_up.size > 0:
            self._given_up.size -= 1
            row = self._given_up.rows[self._given_up.size]
            for i in range(self._out_begins[row], self._out_begins[row + 1]):
                target = self._outs[i].target
                if self._outs[i].when != ON_ANY_END and self._is_unsent(target):
                    self._note_given_up(target)
                    add_row(&self._given_up, target)
        return 0

    cdef int _hurry(self, int32_t play, int64_t now_ns) except -1 nogil:
        """Shorten the time in which no request of a play runs to the cap."""
        cdef int64_t row, first = NEVER_NS, excess_ns
        if self._num_live[play] == 0:
            return 0
        for row in range(self._begins[play], self._begins[play + 1]):
            if self._is_unsent(row) and self._is_free(row):
                first = min(first, self._ready_ns[row])
        excess_ns = first - now_ns - self._idle_cap_ns
        if first == NEVER_NS or excess_ns <= 0:
            return 0
        self._begun_ns[play] -= excess_ns
        for row in range(self._begins[play], self._begins[play + 1]):
            if self._is_unsent(row) and self._is_free(row):
                self._ready_ns[row] -= excess_ns
                self._push_ready(<int32_t>row)
        return 0
