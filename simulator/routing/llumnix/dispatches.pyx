"""Requests at each replica: records of dispatches, linked by replica and by request."""
from libc.stdint cimport INT32_MAX, int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from simulator.core.errors cimport broken, out_of_memory
from simulator.core.memory cimport resize


cdef class Dispatches:
    """A store of dispatches of `num_rows` requests to `num_replicas` replicas."""

    def __cinit__(self, int32_t num_replicas, int32_t num_rows, *_, **__):
        cdef int32_t i
        self._num_replicas, self._num_rows, self._free = num_replicas, num_rows, -1
        self.first_of_replica = <int32_t*>malloc(max(1, num_replicas) * sizeof(int32_t))
        self.first_of_row = <int32_t*>malloc(max(1, num_rows) * sizeof(int32_t))
        if self.first_of_replica == NULL or self.first_of_row == NULL:
            raise MemoryError()
        for i in range(num_replicas):
            self.first_of_replica[i] = -1
        for i in range(num_rows):
            self.first_of_row[i] = -1

    def __dealloc__(self):
        free(self.items)
        free(self.first_of_replica)
        free(self.first_of_row)

    cdef int32_t insert(self, int32_t row, int32_t replica) except -1 nogil:
        cdef int32_t index, first = self.first_of_replica[replica]
        cdef Dispatch* one
        if self._free < 0:
            self._grow()
        index = self._free
        one = &self.items[index]
        self._free = one.next_of_replica
        memset(one, 0, sizeof(Dispatch))
        one.row, one.replica = row, replica
        one.next_of_replica, one.previous_of_replica = first, -1
        if first >= 0:
            self.items[first].previous_of_replica = index
        one.next_of_row = self.first_of_row[row]
        self.first_of_replica[replica] = self.first_of_row[row] = index
        return index

    cdef void drop(self, int32_t index) noexcept nogil:
        cdef Dispatch* one = &self.items[index]
        cdef int32_t* link = &self.first_of_row[one.row]
        while link[0] != index:
            link = &self.items[link[0]].next_of_row
        link[0] = one.next_of_row
        if one.previous_of_replica >= 0:
            self.items[one.previous_of_replica].next_of_replica = one.next_of_replica
        else:
            self.first_of_replica[one.replica] = one.next_of_replica
        if one.next_of_replica >= 0:
            self.items[one.next_of_replica].previous_of_replica = one.previous_of_replica
        one.next_of_replica, self._free = self._free, index

    cdef int _grow(self) except -1 nogil:
        cdef int32_t i, room = max(64, 2 * self._room)
        if self._room > INT32_MAX // 2:
            return out_of_memory()
        resize(&self.items, room * sizeof(Dispatch))
        for i in range(self._room, room):
            self.items[i].next_of_replica = i + 1 if i + 1 < room else -1
        self._free, self._room = self._room, room
        return 0

    cpdef int check(self) except -1:
        cdef int32_t replica, row, index, before, of_rows = 0, at_replicas = 0, unused = 0
        for row in range(self._num_rows):
            index = self.first_of_row[row]
            while index >= 0 and of_rows <= self._room:
                of_rows += 1
                index = self.items[index].next_of_row
        if of_rows > self._room:
            return broken("Dispatches: the list of a request has a cycle")
        for replica in range(self._num_replicas):
            index, before = self.first_of_replica[replica], -1
            while index >= 0:
                if self.items[index].replica != replica or self.items[index].previous_of_replica != before:
                    return broken("Dispatches: the list of a replica has strangers, or does not lead back")
                if self.find(self.items[index].row, replica) != index:
                    return broken("Dispatches: a record is not in the list of its request")
                at_replicas += 1
                before, index = index, self.items[index].next_of_replica
        index = self._free
        while index >= 0 and unused <= self._room:
            unused += 1
            index = self.items[index].next_of_replica
        if of_rows != at_replicas or at_replicas + unused != self._room:
            return broken("Dispatches: a record is neither at a replica nor unused")
        return 0

    # The face for tests.

    def rows_at(self, replica):
        """Return the requests at a replica."""
        cdef int32_t index = self.first_of_replica[replica]
        found = []
        while index >= 0:
            found.append(self.items[index].row)
            index = self.items[index].next_of_replica
        return sorted(found)

    def replicas_of(self, row):
        """Return the replicas at which a request is, first come first."""
        cdef int32_t index = self.first_of_row[row]
        found = []
        while index >= 0:
            found.append(self.items[index].replica)
            index = self.items[index].next_of_row
        return found[::-1]
