"""Memory of an array that goes back to the system while the array stays."""


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #include <unistd.h>
    static inline void sim_give_back(void* array, size_t first, size_t last) {
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)array;
        uintptr_t begin = (start + first) / page * page, end = (start + last) / page * page;
        if (begin < start)
            begin += page;
        if (end > begin)
            madvise((void*)begin, end - begin, MADV_DONTNEED);
    }
    #else
    #define sim_give_back(array, first, last) ((void)(array), (void)(first), (void)(last))
    #endif
    """
    # Give bytes `first` to `last` - 1 of an array from calloc back, in whole pages: they are 0 afterwards. Bytes before
    # `first` on the same page must have been given back, too.
    void give_back "sim_give_back"(void* array, size_t first, size_t last) noexcept nogil
