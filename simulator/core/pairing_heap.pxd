"""Pairing heaps: any number of heaps share one array of nodes, each heap is known by its first node, its root.

Source: Fredman, Sedgewick, Sleator, Tarjan, Algorithmica 1 (1986), with two passes: O(1) to add a node, O(log nodes)
amortised to remove any node.
"""
from libc.stdint cimport int32_t, int64_t


cdef struct HeapNode:
    int64_t key                 # nodes leave by key, then tie, then rank
    int64_t tie
    int32_t rank
    int32_t child               # first of the nodes below it; -1: none
    int32_t next                # next node below the same node; -1: none
    int32_t prev                # previous one; of the first, the node above both; -1: it is the root


cdef inline HeapNode new_node(int64_t key, int64_t tie, int32_t rank) noexcept nogil:
    return HeapNode(key, tie, rank, -1, -1, -1)


cdef inline bint node_before(const HeapNode* a, const HeapNode* b) noexcept nogil:
    if a.key != b.key:
        return a.key < b.key
    return a.tie < b.tie or (a.tie == b.tie and a.rank < b.rank)


# Put one of two roots below the other, and return that; its `next` is left as it was.
cdef inline int32_t merge_roots(HeapNode* nodes, int32_t a, int32_t b) noexcept nogil:
    cdef int32_t above = a, below = b
    if node_before(&nodes[b], &nodes[a]):
        above, below = b, a
    nodes[below].prev = above
    nodes[below].next = nodes[above].child
    if nodes[above].child >= 0:
        nodes[nodes[above].child].prev = below
    nodes[above].child = below
    return above


# Merge a node with all behind it, in pairs and then the pairs from the last on; return the root, -1: none.
cdef inline int32_t merge_pairs(HeapNode* nodes, int32_t first) noexcept nogil:
    cdef int32_t pairs = -1, root = -1, other, following
    while first >= 0:
        other = nodes[first].next
        following = -1
        if other >= 0:
            following = nodes[other].next
            first = merge_roots(nodes, first, other)
        nodes[first].next = pairs
        pairs, first = first, following
    while pairs >= 0:
        following = nodes[pairs].next
        root = pairs if root < 0 else merge_roots(nodes, root, pairs)
        pairs = following
    if root >= 0:
        nodes[root].next = nodes[root].prev = -1
    return root


# Add a node that is in no heap to the heap of `root`, -1: an empty one; return the root.
cdef inline int32_t link_node(HeapNode* nodes, int32_t root, int32_t node) noexcept nogil:
    nodes[node].child = nodes[node].next = nodes[node].prev = -1
    return node if root < 0 else merge_roots(nodes, root, node)


# Remove a node from the heap of `root`; return the root, -1: it is empty.
cdef inline int32_t unlink_node(HeapNode* nodes, int32_t root, int32_t node) noexcept nogil:
    cdef int32_t prev = nodes[node].prev, following = nodes[node].next
    cdef int32_t below = merge_pairs(nodes, nodes[node].child)
    if prev < 0:
        return below
    if nodes[prev].child == node:
        nodes[prev].child = following
    else:
        nodes[prev].next = following
    if following >= 0:
        nodes[following].prev = prev
    return root if below < 0 else merge_roots(nodes, root, below)       # its order is behind the root's


# Do the nodes below a node point back, and is none before it?
cdef inline bint is_family(const HeapNode* nodes, int32_t above) noexcept nogil:
    cdef int32_t prev = above, node = nodes[above].child
    while node >= 0:
        if nodes[node].prev != prev or node_before(&nodes[node], &nodes[above]):
            return False
        prev, node = node, nodes[node].next
    return True
