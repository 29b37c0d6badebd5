"""`orca`: iteration-level batches of whole prompts and decodes, with blocks for whole requests, as in Vidur's Orca.

Every running request has a turn in each batch; a waiting request joins, with its whole prompt, as soon as a place and
blocks for all its text are free. Source: the behaviour of Vidur's scheduler "orca", microsoft/vidur at 7d47513,
replica_scheduler/orca_replica_scheduler.py; Yu et al., Orca, OSDI 2022. Vidur reserves the longest text; reserving by
predicted lengths is the `Oracle` and `Max` of Kwon et al., PagedAttention, arXiv 2309.06180, section 6.1; Orca
has a buddy allocator there.
"""
cimport cython

from simulator.scheduling.whole_requests cimport WholeRequests


@cython.final
cdef class Orca(WholeRequests):
    """Whole prompts and decodes together; see `WholeRequestsParameters`."""
