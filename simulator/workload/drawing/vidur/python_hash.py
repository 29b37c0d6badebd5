"""Python's hash of a text, for programs that use it as a random number.

SipHash with the key that PYTHONHASHSEED = 0 gives, all zeros: 2 rounds a word and 4 at the end up to Python 3.10, which
Vidur requires; 1 and 3 from 3.11 on. Source: J.-P. Aumasson, D. J. Bernstein, SipHash: a fast short-input PRF, 2012.
"""
MASK = 2**64 - 1
START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def python_hash(text: str, rounds: int = 2, last_rounds: int = 4) -> int:
    """Return hash(text) of an ASCII text."""
    data = text.encode("ascii")
    if not data:
        return 0
    state = list(START)
    tail = len(data) % 8
    words = [int.from_bytes(data[at:at + 8], "little") for at in range(0, len(data) - tail, 8)]
    words.append((len(data) & 0xFF) << 56 | int.from_bytes(data[len(data) - tail:], "little"))
    for word in words:
        state[3] ^= word
        _mix(state, rounds)
        state[0] ^= word
    state[2] ^= 0xFF
    _mix(state, last_rounds)
    value = state[0] ^ state[1] ^ state[2] ^ state[3]
    signed = value - 2**64 if value >= 2**63 else value
    return -2 if signed == -1 else signed


def _mix(state: list[int], rounds: int) -> None:
    a, b, c, d = state
    for _ in range(rounds):
        a = (a + b) & MASK
        c = (c + d) & MASK
        b = _turned(b, 13) ^ a
        d = _turned(d, 16) ^ c
        a = (_turned(a, 32) + d) & MASK
        c = (c + b) & MASK
        b = _turned(b, 17) ^ c
        d = _turned(d, 21) ^ a
        c = _turned(c, 32)
    state[:] = a, b, c, d


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & MASK
