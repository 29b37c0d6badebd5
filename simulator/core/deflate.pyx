"""A zlib stream of byte planes."""
from libc.stdint cimport INT64_MAX, int16_t, uint16_t
from libc.string cimport memcpy, memset

from simulator.core.huffman cimport END_OF_BLOCK, NUM_LITERALS, Code, OwnCode, make_code, reversed_bits

cdef enum:
    ADLER_BASE = 65521          # largest prime below 2**16; RFC 1950, section 9
    ADLER_BYTES = 1 << 20       # summed before the remainder is taken: 255 x 2**20 x 2**20 / 2 fits 64 bits
    BLOCK = 32                  # bytes that are summed together
    LONGEST_RUN = 258           # that one code repeats; RFC 1951, section 3.2.5, like all below
    SHORTEST_RUN = 3
    RUN_BITS = 24               # that a run takes, about
    STORED_BITS = 7             # coded bits per byte from which a plane is stored: the code is not worth its time
    SHORTEST_MATCH = 8          # bytes that are looked for elsewhere
    FARTHEST = 32768            # that they may be away
    HASH_BITS = 12
    PATIENCE = 2048             # bytes without a match before a plane is given up that had few
    MATCH_BITS = 28             # that a match takes, about
    FIXED = 1                   # kinds of block, in the two bits behind the one that says whether it is the last
    OWN = 2


cdef Code literals[256]         # of the fixed code
cdef uint32_t run_bits[LONGEST_RUN + 1]         # [length] of the fixed code: length and distance 1
cdef uint8_t run_lengths[LONGEST_RUN + 1]


cdef void make_tables() noexcept nogil:
    """Fill in the fixed code; RFC 1951, sections 3.2.5 and 3.2.6."""
    cdef int32_t byte, symbol = 257, length = SHORTEST_RUN, extra, i
    for byte in range(256):
        literals[byte].length = 8 if byte < 144 else 9
        literals[byte].bits = <uint16_t>reversed_bits(
            0x30 + byte if byte < 144 else 0x190 + byte - 144, literals[byte].length)
    while length < LONGEST_RUN:
        extra = 0 if symbol < 265 else (symbol - 261) // 4
        for i in range(1 << extra):
            if length + i < LONGEST_RUN:
                set_run(length + i, symbol, <uint32_t>i, extra)
        length += 1 << extra
        symbol += 1
    set_run(LONGEST_RUN, 285, 0, 0)


cdef void set_run(int32_t length, int32_t symbol, uint32_t extra, int32_t num_extra) noexcept nogil:
    cdef int32_t code_length = 7 if symbol < 280 else 8
    cdef uint32_t code = symbol - 256 if symbol < 280 else 0xC0 + symbol - 280
    run_bits[length] = reversed_bits(code, code_length) | (extra << code_length)
    run_lengths[length] = <uint8_t>(code_length + num_extra + 5)        # distance 1: five bits, all 0


make_tables()


# ---- bits

cdef inline void put(Deflate* stream, uint64_t bits, int32_t num_bits) noexcept nogil:
    """Write up to 32 bits."""
    cdef uint8_t* out = stream.out + stream.size
    stream.bits |= bits << stream.num_bits
    stream.num_bits += num_bits
    if stream.num_bits >= 32:
        out[0], out[1] = <uint8_t>stream.bits, <uint8_t>(stream.bits >> 8)
        out[2], out[3] = <uint8_t>(stream.bits >> 16), <uint8_t>(stream.bits >> 24)
        stream.size += 4
        stream.bits >>= 32
        stream.num_bits -= 32


cdef void show(Deflate* stream) noexcept nogil:
    """Write the bits still held, and leave the stream as it is."""
    cdef int32_t i
    for i in range(4):
        stream.out[stream.size + i] = <uint8_t>(stream.bits >> (8 * i))


cdef void align(Deflate* stream) noexcept nogil:
    """Go on at a whole byte."""
    while stream.num_bits > 0:
        stream.out[stream.size] = <uint8_t>stream.bits
        stream.size += 1
        stream.bits >>= 8
        stream.num_bits -= 8
    stream.bits, stream.num_bits = 0, 0


cdef void open_fixed(Deflate* stream) noexcept nogil:
    if not stream.is_open:
        put(stream, FIXED << 1, 3)
        stream.is_open = True


cdef void close_fixed(Deflate* stream) noexcept nogil:
    if stream.is_open:
        put(stream, 0, 7)
        stream.is_open = False


cdef void begin_stream(Deflate* stream, uint8_t* out, Match* matches) noexcept nogil:
    memset(stream, 0, sizeof(Deflate))
    stream.out, stream.matches, stream.last, stream.sum_bytes = out, matches, -1, 1
    put(stream, 0x0178, 16)             # deflate, 32 KiB, fastest


cdef void end_stream(Deflate* stream) noexcept nogil:
    cdef uint32_t check = (stream.sum_sums << 16) | stream.sum_bytes
    cdef int32_t i
    close_fixed(stream)
    put(stream, 1 | FIXED << 1, 10)     # an empty block, the last
    align(stream)
    for i in range(4):
        stream.out[stream.size + i] = <uint8_t>(check >> (24 - 8 * i))
    stream.size += 4


# ---- Adler-32

cdef void sum_constant(Deflate* stream, uint8_t byte, int64_t length) noexcept nogil:
    """Add `length` equal bytes: after i bytes the first half is sum_bytes + i x byte."""
    cdef int64_t n = length % ADLER_BASE, triangle = length * (length + 1) // 2 % ADLER_BASE
    stream.sum_sums = <uint32_t>((stream.sum_sums + n * stream.sum_bytes + byte * triangle) % ADLER_BASE)
    stream.sum_bytes = <uint32_t>((stream.sum_bytes + n * byte) % ADLER_BASE)


cdef void sum_plane(Plane* plane) noexcept nogil:
    """Sum bytes, BLOCK at a time: what each adds to the sum of sums depends on how many follow it."""
    cdef const uint8_t* bytes = plane.bytes
    cdef int64_t first = 0, end = plane.length - plane.length % BLOCK
    cdef uint64_t sum_bytes = 0, sum_sums = 0
    cdef int32_t total, weighted, j
    while first < end:
        total = weighted = 0
        for j in range(BLOCK):                  # compilers know this form: a multiply-and-add of short numbers
            total += bytes[first + j]
            weighted += <int32_t>(<int16_t>bytes[first + j] * <int16_t>(BLOCK - j))
        sum_sums += BLOCK * sum_bytes + <uint64_t>weighted
        sum_bytes += <uint64_t>total
        first += BLOCK
        if first % ADLER_BYTES == 0:
            sum_sums %= ADLER_BASE
            sum_bytes %= ADLER_BASE
    while first < plane.length:
        sum_bytes += bytes[first]
        sum_sums += sum_bytes
        first += 1
    plane.sum_bytes, plane.sum_sums = <uint32_t>(sum_bytes % ADLER_BASE), <uint32_t>(sum_sums % ADLER_BASE)


cdef void add_sums(Deflate* stream, const Plane* plane) noexcept nogil:
    cdef uint64_t before = <uint64_t>(plane.length % ADLER_BASE) * stream.sum_bytes
    stream.sum_sums = <uint32_t>((stream.sum_sums + before + plane.sum_sums) % ADLER_BASE)
    stream.sum_bytes = (stream.sum_bytes + plane.sum_bytes) % ADLER_BASE


# ---- planes

cdef inline void put_run(Deflate* stream, uint8_t byte, int64_t length) noexcept nogil:
    """Write `length` equal bytes with the fixed code."""
    cdef int64_t part
    if byte != stream.last:
        put(stream, literals[byte].bits, literals[byte].length)
        stream.last = byte
        length -= 1
    while length >= SHORTEST_RUN:
        part = min(length, <int64_t>LONGEST_RUN)
        put(stream, run_bits[part], run_lengths[part])
        length -= part
    while length > 0:
        put(stream, literals[byte].bits, literals[byte].length)
        length -= 1


cdef void put_constant(Deflate* stream, uint8_t byte, int64_t length) noexcept nogil:
    sum_constant(stream, byte, length)
    open_fixed(stream)
    put_run(stream, byte, length)


cdef void put_plane(Deflate* stream, Plane* plane) noexcept nogil:
    cdef OwnCode code
    cdef int32_t num_matches = 0
    cdef int64_t length = plane.length, stored_cost = length * STORED_BITS
    cdef int64_t matched_cost = INT64_MAX, own_cost = INT64_MAX
    cdef int64_t runs_cost = (num_changes(plane.bytes, length) + length // LONGEST_RUN + 1) * RUN_BITS
    if runs_cost > length:
        matched_cost = find_matches(stream.matches, plane.bytes, length, &num_matches)
        if matched_cost > length and make_code(&code, plane.bytes, length):
            own_cost = cost_of(&code)
    sum_plane(plane)
    add_sums(stream, plane)
    close_fixed(stream)
    plane.is_stored = min(min(runs_cost, matched_cost), own_cost) >= stored_cost
    plane.first_bit = 8 * stream.size + stream.num_bits
    if plane.is_stored:
        put_stored(stream, plane.bytes, length)
    elif own_cost < min(runs_cost, matched_cost):
        put_own(stream, &code, plane.bytes, length)
    elif runs_cost <= matched_cost:
        put_runs(stream, plane.bytes, length)
    else:
        put_matches(stream, num_matches, plane)
    plane.end_bit = 8 * stream.size + stream.num_bits
    stream.last = plane.bytes[length - 1]


cdef void put_again(Deflate* stream, const Plane* plane) noexcept nogil:
    cdef const uint8_t* out = stream.out
    cdef int64_t bit = plane.first_bit
    cdef uint64_t bits
    add_sums(stream, plane)
    close_fixed(stream)
    show(stream)
    if plane.is_stored:
        put_stored(stream, plane.bytes, plane.length)
        bit = plane.end_bit
    while bit < plane.end_bit:
        bits = (out[bit // 8] | <uint64_t>out[bit // 8 + 1] << 8 | <uint64_t>out[bit // 8 + 2] << 16
                | <uint64_t>out[bit // 8 + 3] << 24 | <uint64_t>out[bit // 8 + 4] << 32) >> (bit % 8)
        put(stream, bits & ((<uint64_t>1 << min(<int64_t>32, plane.end_bit - bit)) - 1),
            <int32_t>min(<int64_t>32, plane.end_bit - bit))
        bit += 32
    stream.last = plane.bytes[plane.length - 1]


cdef int64_t num_changes(const uint8_t* plane, int64_t length) noexcept nogil:
    """Count bytes that differ from the one before."""
    cdef int64_t i
    cdef uint32_t found = 0
    for i in range(1, length):
        found += plane[i] != plane[i - 1]
    return found


cdef void put_runs(Deflate* stream, const uint8_t* plane, int64_t length) noexcept nogil:
    """Write a block of the fixed code that needs nothing before it."""
    cdef int64_t first = 0, end
    open_fixed(stream)
    stream.last = -1
    while first < length:
        end = end_of_run(plane, first, length)
        put_run(stream, plane[first], end - first)
        first = end
    close_fixed(stream)


cdef inline int64_t end_of_run(const uint8_t* plane, int64_t first, int64_t length) noexcept nogil:
    cdef uint64_t alike = <uint64_t>plane[first] * <uint64_t>0x0101010101010101, eight
    cdef int64_t end = first + 1
    while end + 8 <= length:
        memcpy(&eight, plane + end, 8)
        if eight != alike:
            break
        end += 8
    while end < length and plane[end] == plane[first]:
        end += 1
    return end


cdef inline int64_t end_of_match(const uint8_t* plane, int64_t before, int64_t first, int64_t length) noexcept nogil:
    cdef uint64_t eight, other
    cdef int64_t back = first - before, end = first + SHORTEST_MATCH
    while end + 8 <= length:
        memcpy(&eight, plane + end, 8)
        memcpy(&other, plane + end - back, 8)
        if eight != other:
            break
        end += 8
    while end < length and plane[end] == plane[end - back]:
        end += 1
    return end


cdef int64_t find_matches(Match* matches, const uint8_t* plane, int64_t length, int32_t* num) noexcept nogil:
    """Find repeats of earlier bytes, SHORTEST_MATCH or more; return the bits of the coded plane, or INT64_MAX.

    One place is remembered for each hash, and steps grow where nothing is found, as in LZ4 (lz4_Block_format.md).
    """
    cdef uint16_t places[1 << HASH_BITS]
    cdef int64_t first = 0, end = 0, before, matched = 0
    cdef uint64_t eight, other
    cdef int32_t slot
    memset(places, 0, sizeof(places))
    num[0] = 0
    while first + SHORTEST_MATCH <= min(length, <int64_t>FARTHEST):
        memcpy(&eight, plane + first, 8)
        slot = <int32_t>((eight * <uint64_t>0x9E3779B97F4A7C15) >> (64 - HASH_BITS))
        before = places[slot]
        places[slot] = <uint16_t>first
        memcpy(&other, plane + before, 8)
        if eight != other or before == first:
            first += 1 + ((first - end) >> 5)
            if first - end > PATIENCE and matched < first // 8:
                return INT64_MAX
            continue
        matches[num[0]].literals = <int32_t>(first - end)
        matches[num[0]].distance = <int32_t>(first - before)
        end = end_of_match(plane, before, first, length)
        matches[num[0]].length = <int32_t>(end - first)
        matched += end - first
        first = end
        num[0] += 1
    return (length - matched) * 17 // 2 + (num[0] + matched // LONGEST_RUN) * MATCH_BITS


cdef void put_matches(Deflate* stream, int32_t num_matches, const Plane* plane) noexcept nogil:
    cdef const Match* match
    cdef const uint8_t* bytes = plane.bytes
    cdef const uint8_t* end = plane.bytes + plane.length
    cdef int32_t i, j, left, part
    open_fixed(stream)
    for i in range(num_matches):
        match = &stream.matches[i]
        for j in range(match.literals):
            put(stream, literals[bytes[j]].bits, literals[bytes[j]].length)
        bytes += match.literals + match.length
        left = match.length
        while left > 0:
            part = min(left, <int32_t>LONGEST_RUN)
            if 0 < left - part < SHORTEST_RUN:          # the rest must be long enough
                part -= SHORTEST_RUN
            put_match(stream, part, match.distance)
            left -= part
    while bytes < end:
        put(stream, literals[bytes[0]].bits, literals[bytes[0]].length)
        bytes += 1
    close_fixed(stream)


cdef void put_match(Deflate* stream, int32_t length, int32_t distance) noexcept nogil:
    """Write a length and a distance with the fixed code; RFC 1951, section 3.2.5."""
    cdef int32_t code = distance - 1, extra = 0
    if distance > 4:
        while (distance - 1) >> extra > 3:
            extra += 1
        code = 2 * extra + ((distance - 1) >> extra)
    put(stream, run_bits[length], run_lengths[length] - 5)
    put(stream, reversed_bits(code, 5) | <uint64_t>((distance - 1) & ((1 << extra) - 1)) << 5, 5 + extra)


cdef void put_stored(Deflate* stream, const uint8_t* plane, int64_t length) noexcept nogil:
    cdef int64_t first = 0, part
    while first < length:
        part = min(<int64_t>STORED_BYTES, length - first)
        put(stream, 0, 3)
        align(stream)
        put(stream, <uint64_t>part | <uint64_t>(part ^ 0xFFFF) << 16, 32)
        memcpy(stream.out + stream.size, plane + first, part)
        stream.size += part
        first += part


# ---- a code of a plane's own

cdef int64_t cost_of(const OwnCode* code) noexcept nogil:
    """Return the bits that a plane takes with its own code, all in all."""
    cdef int64_t cost = header(NULL, code)
    cdef int32_t symbol
    for symbol in range(NUM_LITERALS):
        cost += <int64_t>code.counts[symbol] * code.lengths[symbol]
    return cost


cdef int64_t header(Deflate* stream, const OwnCode* code) noexcept nogil:
    """Write the head of a block with its own code; return its bits. NULL: only count them.

    Lengths 0 to 14, and 18, which repeats 0 11 to 138 times, get four bits each, in this order; no distance is used.
    """
    cdef int64_t total = 3 + 5 + 5 + 4 + 19 * 3
    cdef int32_t i = 0, zeros
    if stream != NULL:
        put(stream, OWN << 1, 3 + 5 + 5)        # 257 literals and lengths, one distance
        put(stream, 15, 4)                      # of 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15
        for i in range(19):
            put(stream, 0 if i < 2 or i == 18 else 4, 3)
    i = 0
    while i <= NUM_LITERALS:                    # the last is the length of the distance
        zeros = 0
        while i + zeros <= NUM_LITERALS and zeros < 138 and (
                i + zeros == NUM_LITERALS or code.lengths[i + zeros] == 0):
            zeros += 1
        if zeros >= 11:
            total += 11
            if stream != NULL:
                put(stream, reversed_bits(15, 4) | <uint32_t>(zeros - 11) << 4, 11)
            i += zeros
        else:
            total += 4
            if stream != NULL:
                put(stream, reversed_bits(0 if i == NUM_LITERALS else code.lengths[i], 4), 4)
            i += 1
    return total


cdef void put_own(Deflate* stream, const OwnCode* code, const uint8_t* plane, int64_t length) noexcept nogil:
    cdef int64_t i
    cdef Code one, other
    cdef Deflate local                          # in registers: to C, writes to out may alias the stream
    header(stream, code)
    local = stream[0]
    for i in range(0, length - 1, 2):           # two at once: 28 bits at most
        one, other = code.codes[plane[i]], code.codes[plane[i + 1]]
        put(&local, one.bits | <uint64_t>other.bits << one.length, one.length + other.length)
    if length % 2 == 1:
        one = code.codes[plane[length - 1]]
        put(&local, one.bits, one.length)
    put(&local, code.codes[END_OF_BLOCK].bits, code.codes[END_OF_BLOCK].length)
    stream[0] = local
