"""A Huffman code for the bytes of a plane, with the bits that deflate gives it."""
from libc.string cimport memset

cdef enum:
    MAX_CODE_BITS = 14          # deflate allows 15, but the header that is written has no word for that
    SAMPLE_BYTES = 64           # sampled bytes in each SAMPLE_EVERY
    SAMPLE_EVERY = 512


cdef bint make_code(OwnCode* code, const uint8_t* plane, int64_t length) noexcept nogil:
    if is_noise(plane, length):
        return False
    count_bytes(code.counts, plane, length)
    code.counts[END_OF_BLOCK] = 1
    make_lengths(code)
    number_codes(code)
    return True


cdef bint is_noise(const uint8_t* plane, int64_t length) noexcept nogil:
    """Judge by the sum of the squares of byte counts: for noise it is a 256th of the square of their sum."""
    cdef int32_t counts[256]
    cdef int64_t first = 0, i, seen = 0
    cdef double squares = 0.0
    memset(counts, 0, sizeof(counts))
    while first < length:
        for i in range(first, min(first + SAMPLE_BYTES, length)):
            counts[plane[i]] += 1
            seen += 1
        first += SAMPLE_EVERY
    for i in range(256):
        squares += <double>counts[i] * counts[i]
    return (squares - seen) * 100 < <double>seen * seen


cdef void count_bytes(int32_t* found, const uint8_t* plane, int64_t length) noexcept nogil:
    cdef int32_t counts[4][256]                 # a single one would stall on repeated bytes
    cdef int64_t i
    memset(counts, 0, sizeof(counts))
    for i in range(0, length - 3, 4):
        counts[0][plane[i]] += 1
        counts[1][plane[i + 1]] += 1
        counts[2][plane[i + 2]] += 1
        counts[3][plane[i + 3]] += 1
    for i in range(length - length % 4, length):
        counts[0][plane[i]] += 1
    for i in range(256):
        found[i] = counts[0][i] + counts[1][i] + counts[2][i] + counts[3][i]


cdef void make_lengths(OwnCode* code) noexcept nogil:
    """Set the lengths of Huffman's code, none above MAX_CODE_BITS: rare bytes count as more until that is so."""
    cdef int32_t symbols[NUM_LITERALS]
    cdef int32_t weights[2 * NUM_LITERALS]
    cdef int32_t num = 0, shift = 0, symbol, i, longest
    for symbol in range(NUM_LITERALS):
        code.lengths[symbol] = 0
        if code.counts[symbol] > 0:
            symbols[num] = symbol
            num += 1
    sort_by_count(symbols, num, code.counts)
    while True:
        for i in range(num):
            weights[i] = (code.counts[symbols[i]] >> shift) + 1 if shift > 0 else code.counts[symbols[i]]
        longest = depths(weights, num)
        if longest <= MAX_CODE_BITS:
            break
        shift += 1
    for i in range(num):
        code.lengths[symbols[i]] = <uint8_t>weights[i]


cdef void sort_by_count(int32_t* symbols, int32_t num, const int32_t* counts) noexcept nogil:
    """Sort, the rarest first: Shell's method, with the gaps of Ciura (FCT 2001)."""
    cdef int32_t* gaps = [132, 57, 23, 10, 4, 1]
    cdef int32_t i, j, k, gap, symbol
    for k in range(6):
        gap = gaps[k]
        for i in range(gap, num):
            symbol, j = symbols[i], i
            while j >= gap and counts[symbols[j - gap]] > counts[symbol]:
                symbols[j] = symbols[j - gap]
                j -= gap
            symbols[j] = symbol


cdef int32_t depths(int32_t* weights, int32_t num) noexcept nogil:
    """Replace `num` (>= 2) sorted weights by their depths in Huffman's tree; return the greatest.

    Leaves lie in order, and so do the nodes as they are made: the two lightest are always at the front of either.
    """
    cdef int32_t parents[2 * NUM_LITERALS]
    cdef int32_t leaf = 0, node = num, made = num, i, _i, chosen, root = 2 * num - 2
    while made <= root:
        weights[made] = 0
        for _i in range(2):
            if leaf < num and (node >= made or weights[leaf] <= weights[node]):
                chosen, leaf = leaf, leaf + 1
            else:
                chosen, node = node, node + 1
            weights[made] += weights[chosen]
            parents[chosen] = made
        made += 1
    weights[root] = 0
    for i in range(root - 1, -1, -1):
        weights[i] = weights[parents[i]] + 1
    return weights[0]                           # the lightest


cdef void number_codes(OwnCode* code) noexcept nogil:
    """Give the codes their bits, by length and then by symbol; RFC 1951, section 3.2.2."""
    cdef uint32_t following = 0
    cdef int32_t length, symbol
    for length in range(1, MAX_CODE_BITS + 1):
        following <<= 1
        for symbol in range(NUM_LITERALS):
            if code.lengths[symbol] == length:
                code.codes[symbol].bits = <uint16_t>reversed_bits(following, length)
                code.codes[symbol].length = <uint16_t>length
                following += 1


cdef uint32_t reversed_bits(uint32_t code, int32_t length) noexcept nogil:
    cdef uint32_t turned = 0
    cdef int32_t i
    for i in range(length):
        turned = (turned << 1) | ((code >> i) & 1)
    return turned
