"""When sequences that gain a token a turn take and give back blocks, in several groups of layers."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.kv.kinds.base cimport LayerKind


@cython.final
cdef class Beats:
    """What turns bring; `kinds` are known by their place.

    kinds : LayerKinds. unit : a multiple of their block sizes, in tokens.
    unknown_tokens : of those computed when a turn begins, in flight.
    caching : blocks of `unit` tokens enter the prefix cache in the turn that fills them.
    """

    def __cinit__(self, kinds, int32_t unit, int32_t unknown_tokens, bint caching):
        cdef int32_t i
        events, visits = [], {(unknown_tokens - 1 + unit) % unit} if caching else set()
        for number, kind in enumerate(kinds):
            events += _events_of(kind, number, unit, unknown_tokens)
        visits |= {rest for rest, *_ in events}
        self._unit = unit
        self._num_events, self.num_visits = len(events), len(visits)
        self.most_given = sum((<LayerKind>kind).num_groups for kind in kinds if (<LayerKind>kind).beat >= 0)
        self._events = <Event*>calloc(self._num_events + 1, sizeof(Event))
        self.visits = <int32_t*>calloc(self.num_visits + 1, sizeof(int32_t))
        if self._events == NULL or self.visits == NULL:
            raise MemoryError()
        for i, (rest, number, taken, given) in enumerate(events):
            self._events[i] = Event(rest, number, taken, given)
        for i, rest in enumerate(sorted(visits)):
            self.visits[i] = rest

    def __dealloc__(self):
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


def _events_of(LayerKind kind, int32_t number, int32_t unit, int32_t unknown_tokens):
    """Return (rest, number, taken, given) of the turns in which a kind takes blocks or gives some back."""
    events = []
    if kind.takes_blocks:
        events += [(first, number, kind.num_groups, 0) for first in range(0, unit, kind.block_size)]
    if kind.beat >= 0:
        events += [((kind.beat + unknown_tokens + first) % unit, number, 0, kind.num_groups)
                   for first in range(0, unit, kind.block_size)]
    return events
