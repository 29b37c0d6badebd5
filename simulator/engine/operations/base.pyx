"""Actions on a cluster besides serving: failures, scaling, migration."""


cdef class Operation:
    """Base of the parts that act on the cluster by events of their own."""

    def __cinit__(self, *_, **__):
        self.kinds = ()

    cdef int start(self) except -1 nogil:
        return 0

    cdef int handle(self, const Event* event) except -1 nogil:
        return 0

    cdef int noticed(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 0

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        return 0

    # ---- calls by other operations

    def cut_off(self, int32_t replica, int64_t now_ns):
        """Note that a replica cannot be reached, until `is_heard_again`."""

    def is_heard_again(self, int32_t replica, int64_t now_ns):
        """Note that a replica can be reached again."""

    def loses_kv(self, int32_t replica):
        """Note that a replica loses all KV."""

    def taken_off(self, int32_t row, bint is_retried, int64_t now_ns):
        """Note that a request has been taken off its replica."""

    def holds(self, int32_t replica):
        """Return whether a replica without requests must not stop yet."""
        return False

    def watch(self, watcher):
        """Call watcher(replica, now_ns) when `holds` becomes False."""

    def report(self, run):
        """Add results to the Run at the end."""
