"""Ends of prompt chunks for layers with states that are kept where blocks end."""


cdef bint _writes_inside(const AlignedText* it, int64_t start, int64_t end, int64_t state) noexcept nogil:
    """Return whether the chunk can write the state at `state` tokens itself, and need not end there."""
    cdef int64_t size = it.alignment
    return (it.checkpoint > 0 and start % it.grid == 0 and (end + size - 1) // size - 2 > (start + size - 1) // size - 1
            and start + it.grid <= state < end and (state - start) % it.checkpoint == 0)


cdef int64_t _last_state(const AlignedText* it, int64_t text) noexcept nogil:
    """Return the end of the last state of a text that a repetition can use, which computes its last token again."""
    if it.dropped > 0:
        return max(text // it.alignment * it.alignment - it.dropped, <int64_t>0)
    return (text - 1) // it.alignment * it.alignment


cdef int64_t aligned_chunk(const AlignedText* it, int64_t start, int64_t tokens) noexcept nogil:
    cdef int64_t behind = max(it.prompt, it.text - 1), end = start + tokens, stop, cut
    cdef bint is_inside
    if start >= behind:
        return tokens
    is_inside = end >= behind and _writes_inside(it, start, end, _last_state(it, behind))
    if end < behind:
        cut = end // it.alignment * it.alignment
        if cut > start or it.alignment <= it.largest:
            end = cut
    cut = end
    stop = _last_state(it, it.text)                             # the last state that a repeated text can use
    if start < stop < cut and not is_inside:
        cut = stop
    if stop < it.tail < it.prompt and start < it.tail < cut:
        cut = it.tail
    if start % it.alignment != 0 and not is_inside:
        cut = min(cut, (start // it.alignment + 1) * it.alignment)
    if start < it.junction < end:
        stop = start + (it.junction - start) // it.alignment * it.alignment
        if start < stop < cut:
            cut = stop
    return max(cut - start, <int64_t>0)
