"""Ends of prompt chunks for layers with states that are kept where blocks end."""
from libc.stdint cimport int64_t


cdef int64_t aligned_chunk(const AlignedText* it, int64_t start, int64_t tokens) noexcept nogil:
    cdef int64_t behind = max(it.prompt, it.text - 1), end = start + tokens, stop, cut
    if start >= behind:
        return tokens
    if end < behind:
        cut = end // it.alignment * it.alignment
        if cut > start or it.alignment <= it.largest:
            end = cut
    cut = end
    stop = (it.text - 1) // it.alignment * it.alignment         # the last state that a repeated text can use
    if start < stop < cut:
        cut = stop
    if stop < it.tail < it.prompt and start < it.tail < cut:
        cut = it.tail
    if start % it.alignment != 0:
        cut = min(cut, (start // it.alignment + 1) * it.alignment)
    if start < it.junction < end:
        stop = start + (it.junction - start) // it.alignment * it.alignment
        if start < stop < cut:
            cut = stop
    return max(cut - start, <int64_t>0)
