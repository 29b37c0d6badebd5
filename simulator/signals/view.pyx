"""A router's view of its replicas, fresh or stale, and the list of changed replicas."""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from simulator.signals.media cimport NUM_MEDIA

import numpy as np

from simulator.domain import records


cdef class View:
    """States and accounts of `num_replicas` replicas, at first empty and routable.

    A plain View shows the content of `state_array` and `account_array`; code that writes there calls `touch`.
    """

    def __cinit__(self, int32_t num_replicas, *_, **__):
        cdef ReplicaState[::1] states
        cdef ReplicaAccount[::1] accounts
        if num_replicas < 1:
            raise ValueError(f"num_replicas must be >= 1, found {num_replicas}")
        self.num_replicas = num_replicas
        self.state_array = np.zeros(num_replicas, records.REPLICA_STATE)
        self.account_array = np.zeros(num_replicas, records.REPLICA_ACCOUNT)
        self.account_array["replica"] = np.arange(num_replicas)
        self.account_array["node"] = self.account_array["unit"] = -1
        self.account_array["is_routable"] = True
        states, accounts = self.state_array, self.account_array
        self.states, self.accounts = &states[0], &accounts[0]
        self.changed = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        self._is_changed = <int8_t*>calloc(num_replicas, sizeof(int8_t))
        self.cached = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        self._tiered = <int32_t*>calloc(<size_t>NUM_MEDIA * num_replicas, sizeof(int32_t))
        if (self.changed == NULL or self._is_changed == NULL or self.cached == NULL
                or self._tiered == NULL):
            raise MemoryError()
        self.touch()

    def __dealloc__(self):
        free(self.changed)
        free(self._is_changed)
        free(self.cached)
        free(self._tiered)

    cdef int look(self, int64_t now_ns) except -1 nogil:
        return 0

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        return 0

    cdef const int32_t* cached_everywhere(self, int32_t row, int64_t now_ns) except NULL nogil:
        cdef int32_t i
        for i in range(self.num_replicas):
            self.cached[i] = self.cached_blocks(i, row, now_ns)
        return self.cached

    cdef bint holds_adapter(self, int32_t replica, int32_t adapter, int64_t now_ns) noexcept nogil:
        return False

    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil:
        memcpy(self._tiered, self.cached_everywhere(row, now_ns), self.num_replicas * sizeof(int32_t))
        return self._tiered

    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil:
        return self.tiers_in_turn(row, 0, now_ns)

    def touch(self, replica=None):
        """Note that one replica, or all replicas, changed (for Python and tests)."""
        for each in range(self.num_replicas) if replica is None else [replica]:
            self.mark(each)
