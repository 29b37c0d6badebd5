"""The two ways compiled code fails. Each returns -1 with a Python exception set, for `int f() except -1 nogil`."""


cdef inline int out_of_memory() except -1 nogil:
    with gil:
        raise MemoryError()


cdef inline int broken(const char* what) except -1 nogil:      # a structure's check() found it inconsistent
    with gil:
        raise RuntimeError(what.decode())
