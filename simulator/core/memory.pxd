"""Arrays that grow, and asking for memory before it is needed."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from simulator.core.errors cimport out_of_memory


cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #define SIM_PREFETCH(address) __asm__ volatile("prefetchw (%0)" : : "r"(address))
    #elif defined(__GNUC__) || defined(__clang__)
    #define SIM_PREFETCH(address) __builtin_prefetch(address, 1)
    #else
    #define SIM_PREFETCH(address) ((void)(address))
    #endif
    """
    void* aligned_alloc(size_t alignment, size_t size) noexcept nogil

    # The cache line at this address, any address, will be written to soon. (A prefetch for reading was measured not to
    # help with lines that were modified elsewhere.)
    void prefetch "SIM_PREFETCH"(const void* address) noexcept nogil


cdef enum:
    LINE_BYTES = 64             # of a cache line


# Prefetch `count` lines from there on.
cdef inline void prefetch_lines(const void* address, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        prefetch(<const char*>address + LINE_BYTES * i)


# Give an array another size in bytes; `array` is the address of the pointer to it, of whatever type, which is copied
# byte by byte for that reason. -1 without memory, and nothing changed.
cdef inline int resize(void* array, size_t size) except -1 nogil:
    cdef void* moved
    memcpy(&moved, array, sizeof(void*))
    moved = realloc(moved, size)
    if moved == NULL:
        return out_of_memory()
    memcpy(array, &moved, sizeof(void*))
    return 0


# Resize an array that begins with a cache line, and keep `before` bytes of it.
cdef inline int resize_lines(void* array, size_t before, size_t size) except -1 nogil:
    cdef void* old
    cdef void* moved = aligned_alloc(LINE_BYTES, (size + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES)
    if moved == NULL:
        return out_of_memory()
    memcpy(&old, array, sizeof(void*))
    if before > 0:
        memcpy(moved, old, before)
    free(old)
    memcpy(array, &moved, sizeof(void*))
    return 0
