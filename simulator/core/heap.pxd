"""The heap of all queues: functions on an array of entries, of which none is before its parent.

`Keyed` entries and events have four children to a node, half as deep as with two, a family in one or two cache lines.
`Placed` entries have two; `places` records where each one is, so that each can be moved or removed.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.core.arithmetic cimport pair_before
from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport resize


cdef struct Keyed:
    int64_t key                 # >= 0
    int64_t number              # >= 0; settles equal keys


cdef struct Event:
    int64_t time_ns             # when it happens, >= 0
    int64_t order               # priority << 48 | sequence: settles equal times, no two events share one
    int32_t kind                # the owner's enum
    int32_t replica             # the replica of the event; the owner defines its meaning
    int64_t payload             # an index, never an object; the owner defines its meaning


cdef struct Placed:
    int64_t key
    int64_t tie                 # settles equal keys
    int32_t rank                # settles equal ties; entries equal in all three keep no particular order
    int32_t index               # index in `places`


ctypedef fused Entry:
    Keyed
    Event
    Placed


# Does one leave before the other? Without a branch: which of two entries is earlier is a coin toss.
cdef inline bint entry_before(const Entry* a, const Entry* b) noexcept nogil:
    if Entry is Placed:
        return (a.key < b.key) | ((a.key == b.key) & ((a.tie < b.tie) | ((a.tie == b.tie) & (a.rank < b.rank))))
    elif Entry is Event:
        return pair_before(a.time_ns, a.order, b.time_ns, b.order)
    else:
        return pair_before(a.key, a.number, b.key, b.number)


cdef inline int64_t parent_of(const Entry* heap, int64_t place) noexcept nogil:
    if Entry is Placed:
        return (place - 1) >> 1
    else:
        return (place - 1) >> 2


# Write an entry to a place. `places`, here and below: [index] of Placed entries; NULL: places are not recorded.
cdef inline void set_entry(Entry* heap, int32_t* places, int64_t place, const Entry* entry) noexcept nogil:
    heap[place] = entry[0]
    if Entry is Placed:
        if places != NULL:
            places[entry.index] = <int32_t>place


# Put an entry where it belongs, from the hole `hole` towards the first.
cdef inline void sift_up(Entry* heap, int32_t* places, int64_t hole, Entry entry) noexcept nogil:
    cdef int64_t parent
    while hole > 0:
        parent = parent_of(heap, hole)
        if not entry_before(&entry, &heap[parent]):
            break
        set_entry(heap, places, hole, &heap[parent])
        hole = parent
    set_entry(heap, places, hole, &entry)


# Put an entry where it belongs in a heap of `size` entries, the hole included, from the hole towards the last.
cdef inline void sift_down(Entry* heap, int32_t* places, int64_t size, int64_t hole, Entry entry) noexcept nogil:
    cdef int64_t top = hole, child, first, other
    if Entry is Placed:         # it mostly goes to one of the last places: the hole first, for one comparison a level
        child = 2 * hole + 1
        while child < size:
            child += child + 1 < size and entry_before(&heap[child + 1], &heap[child])
            set_entry(heap, places, hole, &heap[child])
            hole = child
            child = 2 * hole + 1
        while hole > top and not entry_before(&heap[(hole - 1) >> 1], &entry):
            set_entry(heap, places, hole, &heap[(hole - 1) >> 1])
            hole = (hole - 1) >> 1
    else:
        first = 4 * hole + 1
        while first < size:
            if first + 4 <= size:               # a whole family: a knock-out without branches
                child = first + entry_before(&heap[first + 1], &heap[first])
                other = first + 2 + entry_before(&heap[first + 3], &heap[first + 2])
                child = other if entry_before(&heap[other], &heap[child]) else child
            else:
                child = first
                for other in range(first + 1, size):
                    child = other if entry_before(&heap[other], &heap[child]) else child
            if not entry_before(&heap[child], &entry):
                break
            heap[hole] = heap[child]
            hole = child
            first = 4 * hole + 1
    set_entry(heap, places, hole, &entry)


# Put an entry where it belongs, in whichever direction it must go.
cdef inline void sift(Entry* heap, int32_t* places, int64_t size, int64_t hole, Entry entry) noexcept nogil:
    if hole > 0 and entry_before(&entry, &heap[parent_of(heap, hole)]):
        sift_up(heap, places, hole, entry)
    else:
        sift_down(heap, places, size, hole, entry)


# Is no entry before its parent?
cdef inline bint in_order(const Entry* heap, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(1, size):
        if entry_before(&heap[i], &heap[parent_of(heap, i)]):
            return False
    return True


# Make room for one more entry in a heap that is full. -1 without memory, and nothing changed.
cdef inline int grow(void* heap, int64_t* room, size_t entry_bytes, int64_t first_room) except -1 nogil:
    cdef int64_t more = max(first_room, 2 * room[0])
    resize(heap, more * entry_bytes)
    room[0] = more
    return 0


cdef struct RowHeap:            # all zero at first; the owner frees `entries`
    Keyed* entries              # [size] the next to leave first
    int64_t size
    int64_t room                # entries that fit before it must grow


# The key of the first, if it is a time; NEVER_NS if empty.
cdef inline int64_t first_ns(const RowHeap* heap) noexcept nogil:
    return heap.entries[0].key if heap.size > 0 else NEVER_NS


# Add an entry. -1 without memory, and nothing changed.
cdef inline int push_row(RowHeap* heap, int64_t key, int64_t number) except -1 nogil:
    if heap.size == heap.room:
        grow(&heap.entries, &heap.room, sizeof(Keyed), 16)
    heap.size += 1
    sift_up(heap.entries, NULL, heap.size - 1, Keyed(key, number))
    return 0


# Remove and return the first. The heap must not be empty.
cdef inline Keyed pop_row(RowHeap* heap) noexcept nogil:
    cdef Keyed first = heap.entries[0]
    heap.size -= 1
    if heap.size > 0:
        sift_down(heap.entries, NULL, heap.size, 0, heap.entries[heap.size])
    return first
