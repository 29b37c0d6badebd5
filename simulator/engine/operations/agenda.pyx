"""Actions at rare events: calls into Python."""
cimport cython


@cython.final
cdef class Agenda:
    """Actions, each called as `action(time_ns)` at an event of its own."""

    def __init__(self, Fleet fleet):
        self._fleet = fleet
        self._actions = {}

    def at(self, int64_t time_ns, int kind, action, priority=None):
        """Call an action at an instant; at equal times by `priority`, that of the EventKind unless given."""
        self._fleet.events.push(time_ns, kind if priority is None else priority, kind, 0, self._note(action))

    def tick(self, int64_t time_ns, int kind, action):
        """Call an action at an instant if there is work by then."""
        self._fleet.push_tick(time_ns, kind, self._note(action))

    def _note(self, action):
        self._count += 1
        self._actions[self._count] = action
        return self._count

    cdef int act(self, const Event* event) except -1 nogil:
        with gil:
            self._actions.pop(event.payload)(event.time_ns)
        return 0
