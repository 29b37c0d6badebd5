"""Random numbers of single requests: each depends on seed, purpose and the request's id alone.

So a request's numbers do not depend on other requests or on their order.
"""
from hashlib import blake2b

import numpy as np

# SplitMix64: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, figure 17.
GOLDEN, MIX_A, MIX_B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
FRACTION_BITS = 53


def keys_of(request_ids, count: int) -> np.ndarray:
    """Return an identifying number for each request, uint64 (n,).

    request_ids : int64 (n,) or list of str; None: the row numbers, 0 .. count - 1.
    """
    if request_ids is None:
        return np.arange(count, dtype=np.uint64)
    if isinstance(request_ids, np.ndarray):
        return request_ids.astype(np.int64).view(np.uint64)
    return np.array([_hash(name.encode()) for name in request_ids], dtype=np.uint64)


def uniforms(seed: int, purpose: str, keys: np.ndarray) -> np.ndarray:
    """Return a number in [0, 1) for each key, float64 (n,)."""
    salt = np.uint64(_hash(f"{seed}/{purpose}".encode()))
    mixed = _mixed(_mixed(keys * np.uint64(GOLDEN) + salt) + salt)
    return (mixed >> np.uint64(64 - FRACTION_BITS)) * 2.0 ** -FRACTION_BITS


def normals(seed: int, purpose: str, keys: np.ndarray) -> np.ndarray:
    """Return a standard normal number for each key, float64 (n,).

    By the transformation of Box and Muller.
    """
    radius = np.sqrt(-2 * np.log1p(-uniforms(seed, f"{purpose}/radius", keys)))
    return radius * np.cos(2 * np.pi * uniforms(seed, f"{purpose}/angle", keys))


def log_gammas(seed: int, purpose: str, keys: np.ndarray, shape: float) -> np.ndarray:
    """Return the logarithm of a gamma distributed number for each key.

    shape : > 0; the scale is 1. Logarithms, since small shapes give numbers below the range of float64.
    Source: Marsaglia, Tsang, A Simple Method for Generating Gamma Variables, ACM TOMS 26 (3), 2000, sections 3 and 6.
    """
    base = (shape + 1.0 if shape < 1.0 else shape) - 1.0 / 3.0
    found, left, turn = np.empty(len(keys)), np.arange(len(keys)), 0
    while len(left):
        normal = normals(seed, f"{purpose}/normal/{turn}", keys[left])
        cube = (1.0 + normal / np.sqrt(9.0 * base)) ** 3
        log_cube = np.log(np.maximum(cube, np.finfo(float).tiny))
        log_uniform = np.log1p(-uniforms(seed, f"{purpose}/uniform/{turn}", keys[left]))
        fits = (cube > 0) & (log_uniform < 0.5 * normal**2 + base * (1.0 - cube + log_cube))
        found[left[fits]] = np.log(base) + log_cube[fits]
        left, turn = left[~fits], turn + 1
    if shape < 1.0:
        found += np.log1p(-uniforms(seed, f"{purpose}/power", keys)) / shape
    return found


def _mixed(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(MIX_A)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(MIX_B)
    return values ^ (values >> np.uint64(31))


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
