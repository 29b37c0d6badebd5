"""Autoscaling of replicas."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.operations.agenda cimport Agenda
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.lifecycle cimport Lifecycle
from simulator.core.row_list cimport RowList


@cython.final
cdef class Scaling:
    cdef readonly bint wants_finished   # the policy uses the requests that left
    cdef Fleet _fleet
    cdef Agenda _agenda
    cdef Lifecycle _lifecycle
    cdef object _settings               # domain.autoscaling.Autoscaling
    cdef tuple _pools                   # engine.plan.Pool
    cdef object _requests               # structured array of the workload
    cdef object _generator              # of delays
    cdef readonly object starts         # starts.Starts
    cdef int64_t _interval_ns           # between two decisions
    cdef list _groups                   # Group
    cdef dict _owners                   # pool -> its Group
    cdef object _mediator               # shared_budget.Mediator; None: each group decides by itself
    cdef int64_t _num_cut               # ordered changes that were not carried out in full
    cdef RowList _finished              # requests that left replicas since the last decision or scrape
    cdef list _scraped                  # rows of requests that had left at the last scrape, since the last decision
    cdef object _offsets                # generator of the time of the first scrape
    cdef int64_t _scrape_ns             # between two scrapes
    cdef int64_t _next_scrape_ns
    cdef int64_t _poll_ns               # between two looks at the activity of models

    # A request has left.
    cdef int note_finished(self, int32_t row) except -1 nogil
