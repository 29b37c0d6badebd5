"""`orca`: iteration-level batches of whole prompts and decodes, with the blocks of whole requests, as Vidur has Orca.

Everyone who runs has a turn in each batch; who waits joins as soon as a place and the blocks of all its text are free,
with the whole prompt. Source: the behaviour of Vidur's scheduler "orca", microsoft/vidur at 7d47513,
replica_scheduler/orca_replica_scheduler.py; Yu et al., Orca, OSDI 2022. Vidur sets aside the longest text; blocks by
lengths that are foretold are the `Oracle` and `Max` of Kwon et al., PagedAttention, arXiv 2309.06180, section 6.1.
"""
cimport cython

from simulator.scheduling.whole_requests cimport WholeRequests


@cython.final
cdef class Orca(WholeRequests):
    """Whole prompts and decodes together; see `WholeRequestsParameters`."""
