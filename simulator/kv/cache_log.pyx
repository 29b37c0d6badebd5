"""The hashes that enter and leave a prefix cache, or a level of a tier, for a follower outside the replica."""
from libc.stdlib cimport free, realloc
cimport cython


@cython.final
cdef class CacheLog:
    """Changes in the order in which they happened.

    other : CacheLog of another follower, which gets all entries, too.
    """

    def __init__(self, CacheLog other=None):
        self._other = other

    def __dealloc__(self):
        free(self.changes)

    cdef void note(self, uint64_t hash, bint is_there) noexcept nogil:
        cdef int64_t room = 2 * self._room + 256
        cdef void* changes
        if self._other is not None:
            self._other.note(hash, is_there)
        if self.size == self._room:
            changes = realloc(self.changes, room * sizeof(CacheChange))
            if changes == NULL:
                self.has_lost_some = True
                return
            self.changes, self._room = <CacheChange*>changes, room
        self.changes[self.size].hash = hash
        self.changes[self.size].is_there = is_there
        self.size += 1

    def take(self):
        """Return the entries, and empty the log, as its only reader."""
        if self.has_lost_some:
            raise MemoryError()
        taken = self.entries()
        self.size = 0
        return taken

    def entries(self):
        """Return [(hash, is it there)] since the log was emptied."""
        return [(self.changes[i].hash, bool(self.changes[i].is_there)) for i in range(self.size)]
