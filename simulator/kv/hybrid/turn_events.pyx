"""Times at which decoding sequences take and give back blocks, in several groups of layers."""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.kv.hybrid.layer_kind cimport LayerKind


@cython.final
cdef class TurnEvents:
    """Events of turns; `kinds` are identified by their index.

    kinds : LayerKinds. unit : a multiple of their block sizes, in tokens.
    unknown_tokens : tokens computed when a turn begins that are still in flight.
    caching : blocks of `unit` tokens enter the prefix cache in the turn that fills them.
    """

    def __cinit__(self, kinds, int32_t unit, int32_t unknown_tokens, bint caching):
        cdef int32_t i
        filled, events = (unknown_tokens - 1 + unit) % unit, []
        for number, kind in enumerate(kinds):
            events += _events_of(kind, number, unit, unknown_tokens)
        rests = sorted({rest for rest, *_ in events} | ({filled} if caching else set()))
        self._unit = unit
        self._num_events, self.num_visits = len(events), len(rests)
        self.most_given = sum((<LayerKind>kind).num_groups for kind in kinds if (<LayerKind>kind).frees_at >= 0)
        self._events = <Event*>calloc(self._num_events + 1, sizeof(Event))
        self.visits = <Visit*>calloc(self.num_visits + 1, sizeof(Visit))
        if self._events == NULL or self.visits == NULL:
            raise MemoryError()
        for i, (rest, number, taken, given) in enumerate(events):
            self._events[i] = Event(rest, number, taken, given)
        for i, rest in enumerate(rests):
            takers, givers = ({number for at, number, *counts in events if at == rest and counts[what]}
                              for what in (0, 1))
            counted = {number for number in takers if (<LayerKind>kinds[number]).is_counted}
            self.visits[i].rest, self.visits[i].fills = rest, caching and rest == filled
            self.visits[i].num_counted = sum((<LayerKind>kinds[number]).num_groups for number in counted)
            _fill(&self.visits[i].takers, &self.visits[i].num_takers, sorted(
                group for number in takers - counted for group in kinds[number].numbers()))
            _fill(&self.visits[i].givers, &self.visits[i].num_givers, sorted(
                group for number in givers for group in kinds[number].givers()))

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.num_visits if self.visits != NULL else 0):
            free(self.visits[i].takers)
            free(self.visits[i].givers)
        free(self._events)
        free(self.visits)

    cdef void count(self, int32_t phase, uint64_t active, int32_t times, int32_t* due, int32_t* given) noexcept nogil:
        cdef const Event* event
        cdef int32_t i, at
        for i in range(self._num_events):
            event = &self._events[i]
            at = (phase + event.rest) % self._unit
            due[at] += times * event.taken
            if event.given > 0 and active >> event.kind & 1:
                due[at] -= times * event.given
                given[at] += times * event.given


cdef int _fill(int32_t** numbers, int32_t* count, groups) except -1:
    cdef int32_t i
    numbers[0] = <int32_t*>calloc(len(groups) + 1, sizeof(int32_t))
    if numbers[0] == NULL:
        raise MemoryError()
    for i in range(len(groups)):
        numbers[0][i] = groups[i]
    count[0] = len(groups)
    return 0


def _events_of(LayerKind kind, int32_t number, int32_t unit, int32_t unknown_tokens):
    """Return (rest, number, taken, given) of the turns in which a kind takes blocks or gives some back."""
    events = []
    if kind.takes_blocks:
        events += [(first, number, kind.num_groups, 0) for first in range(0, unit, kind.block_size)]
    if kind.frees_at >= 0:
        events += [((kind.frees_at + unknown_tokens + first) % unit, number, 0, kind.num_groups)
                   for first in range(0, unit, kind.block_size)]
    return events
