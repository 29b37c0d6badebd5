"""The chunks of a text that a tier keeps, and that a hit needs, for one group of layers.

A group of layers with a window keeps only the ends of segments, where a hit may end; with layers of a drafter, the
block behind, too. Source: the behaviour of vLLM 0.32.0 and 0.33.0,
vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py.
"""


cdef bint is_kept(const LayerChunks* it, const Tails* tails, int32_t chunk) noexcept nogil:
    cdef int32_t count = it.chunk_tokens // it.block_size, i
    if it.is_plain:
        return True
    for i in range(chunk * count, (chunk + 1) * count):
        if _is_in_tail(it, tails, i):
            return True
    return False


cdef bint is_block_kept(const LayerChunks* it, const Tails* tails, int32_t block) noexcept nogil:
    return it.is_plain or _is_in_tail(it, tails, block)


cdef bint _is_in_tail(const LayerChunks* it, const Tails* tails, int32_t block) noexcept nogil:
    cdef int32_t rest
    if it.segment_blocks > 0 and block >= it.drops and (
            (block - it.drops) % it.segment_blocks >= it.segment_blocks - it.tail_blocks):
        return True
    if tails.at_ends:
        return _ends_with(it, tails.prompt, block) or (tails.junction > 0 and _ends_with(it, tails.junction, block))
    if it.drops:
        return False
    rest = tails.end % it.segment_blocks if tails.end > 0 and it.segment_blocks > 0 else 0
    return rest > 0 and max(tails.end - rest, tails.end - it.tail_blocks) <= block < tails.end


cdef bint _ends_with(const LayerChunks* it, int64_t tokens, int32_t block) noexcept nogil:
    cdef int32_t end = <int32_t>(tokens // it.block_size) // it.align_blocks * it.align_blocks + it.drops
    return end - it.tail_blocks <= block < end


def chunks_of(layers, blocks_per_chunk):
    """Return the rules of each group, as dicts that are LayerChunks.

    layers : LayerGroups, of full and sliding attention and of states kept where blocks end. blocks_per_chunk : of each.
    """
    full = {group.block_size for group in layers.groups if group.kind == "full_attention"}
    sizes = {group.block_size for group in layers.groups}
    align = 0                       # tokens at multiples of which a hit is likely to end; 0: unknown
    if len(full) == 1:
        align = full.pop() * blocks_per_chunk
    elif not full:
        align = max(sizes) * blocks_per_chunk
    return [_chunks_of(group, blocks_per_chunk, align, layers.retention_interval) for group in layers.groups]


def _chunks_of(group, blocks_per_chunk, align, interval):
    size = group.block_size
    chunk_tokens, is_state = size * blocks_per_chunk, group.kind == "linear_attention"
    found = {"block_size": size, "chunk_tokens": chunk_tokens, "window": group.window, "is_state": is_state,
             "window_chunks": 1 if is_state else -(-group.window // chunk_tokens), "is_plain": True,
             "drops": group.has_drafter, "tail_blocks": 0, "segment_blocks": 0, "align_blocks": 0}
    if group.kind != "sliding_attention" or align == 0 or align % size:
        return found
    tail = -(-(group.window - 1) // size) + group.has_drafter       # a hit leaves the block behind its end
    segment = (align if interval is None else interval) // size
    return found | {"is_plain": interval != 0 and tail >= segment, "tail_blocks": tail, "segment_blocks": segment,
                    "align_blocks": align // size}
