"""Keys of the chunks of a prompt in Llumnix's KV stores.

Not used while simulating, where the hashes of simulator.kv.content identify texts; for reading or writing the keys of a
real store. Source: llumnix-project/llumnix at 8a693b4, token_hasher.go.
"""
import hashlib
import struct
from collections.abc import Iterator, Sequence

_MASK = 2**64 - 1
# Constants of XXH64 (Y. Collet, xxHash fast digest algorithm, specification 0.1.1).
_P1, _P2, _P3, _P4, _P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                           0x27D4EB2F165667C5)


def chunk_keys(tokens: Sequence[int], chunk_size: int = 256, algorithm: str = "sha256_cbor",
               save_unfull_chunk: bool = False) -> list[str]:
    """Return the key of each chunk of a prompt; each covers all tokens before it too.

    Parameters
    ----------
    tokens : token ids, at least one.
    chunk_size : tokens per chunk.
    algorithm : "sha256_cbor" (Mooncake under vLLM), "sha256_hex" or "xxhash" (v6d).
    save_unfull_chunk : whether the rest after the last whole chunk has a key; "sha256_hex" marks it with "_0".

    Raises
    ------
    ValueError
        No tokens, or an unknown algorithm.
    """
    if not tokens:
        raise ValueError("no tokens to hash")
    if algorithm not in _ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}; valid: {', '.join(_ALGORITHMS)}")
    end = len(tokens) if save_unfull_chunk else len(tokens) // chunk_size * chunk_size
    chunks = [tokens[i:i + chunk_size] for i in range(0, end, chunk_size)]
    return list(_ALGORITHMS[algorithm](chunks, chunk_size))


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 hash of some bytes."""
    position, length = 0, len(data)
    if length >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while position + 32 <= length:
            words = struct.unpack_from("<4Q", data, position)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            position += 32
        value = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = (seed + _P5) & _MASK
    return _avalanche(_take_rest(value + length & _MASK, data, position))


def _take_rest(value: int, data: bytes, position: int) -> int:
    while position + 8 <= len(data):
        word = int.from_bytes(data[position:position + 8], "little")
        value = (_rotate(value ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        position += 8
    if position + 4 <= len(data):
        word = int.from_bytes(data[position:position + 4], "little")
        value = (_rotate(value ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        value = _rotate(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return value


def _avalanche(value: int) -> int:
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _sha256_hex(chunks: list[Sequence[int]], chunk_size: int) -> Iterator[str]:
    digest = b""
    for chunk in chunks:
        digest = hashlib.sha256(digest + struct.pack(f"<{len(chunk)}I", *chunk)).digest()
        yield digest.hex() if len(chunk) == chunk_size else f"{digest.hex()}_0"


def _sha256_cbor(chunks: list[Sequence[int]], _: int) -> Iterator[str]:
    digest = hashlib.sha256(_cbor("0")).digest()    # the seed where GO_HASH_SEED is not set
    for chunk in chunks:
        digest = hashlib.sha256(_cbor([digest, list(chunk), None])).digest()
        yield f"{digest.hex()}_0"


def _xxhash(chunks: list[Sequence[int]], chunk_size: int) -> Iterator[str]:
    text = b""
    for chunk in chunks:
        text += struct.pack(f"<{len(chunk)}q", *chunk) + bytes(8 * (chunk_size - len(chunk)))
        yield f"iris.block.hash.key.{xxh64(text)}"


def _cbor(value: object) -> bytes:
    """Encode the content of a key in canonical CBOR (RFC 8949, 4.2)."""
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return _cbor_head(0, value)
    if isinstance(value, bytes):
        return _cbor_head(2, len(value)) + value
    if isinstance(value, str):
        return _cbor_head(3, len(value.encode())) + value.encode()
    return _cbor_head(4, len(value)) + b"".join(map(_cbor, value))


def _cbor_head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    size = next(power for power in range(4) if number < 256**2**power)
    return bytes([major << 5 | 24 + size]) + number.to_bytes(2**size, "big")


_ALGORITHMS = {"sha256_cbor": _sha256_cbor, "sha256_hex": _sha256_hex, "xxhash": _xxhash}
