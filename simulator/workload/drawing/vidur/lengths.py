"""Vidur's lengths: prompt and output of a request are drawn together.

A generator is built as `Generator(parameters)` and has one method, `next(draws)`: prompt and output tokens as numbers
with fractions, which are cut off later; None: there is no next request.
"""
import math
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.drawing.vidur.python_hash import python_hash
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import read_bytes
from simulator.workload.reading.tables import scan_columns

Tokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS // 2)]
Ratio = Annotated[float, Meta(gt=0, le=1e6, description="prompt over output tokens")]
Scale = Annotated[float, Meta(gt=0, le=1e6)]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1, description="seed of this generator's own random numbers")]
LEAST = 1e-8                # Vidur adds it to divisors


class FixedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One length for all."""

    prefill_tokens: Annotated[Tokens, Meta(description="prompt length")] = 2048
    decode_tokens: Annotated[Tokens, Meta(description="output length")] = 512


class UniformParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A uniform total, divided between prompt and output."""

    min_tokens: Annotated[Tokens, Meta(description="least of prompt and output together")] = 1024
    max_tokens: Annotated[Tokens, Meta(description="most of prompt and output together")] = 4096
    prefill_to_decode_ratio: Ratio = 20.0

    def __post_init__(self):
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")


class ZipfParameters(UniformParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A total with many short values, divided between prompt and output."""

    theta: Annotated[float, Meta(ge=0, lt=1, description="how much more common short totals are")] = 0.6
    scramble: Annotated[bool, Meta(description=(
        "spread the totals over the range, by Python's hash with PYTHONHASHSEED = 0"))] = False
    seed: Seed = 42

    def __post_init__(self):
        super().__post_init__()
        if self.max_tokens - self.min_tokens < 2:
            raise ValueError("from min_tokens to max_tokens have to be three lengths or more")


class TraceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows of a file, scaled, cut and shuffled."""

    trace_file: Annotated[str, Meta(extra={"path": True}, description=(
        "CSV with columns num_prefill_tokens and num_decode_tokens"))]
    prefill_scale_factor: Annotated[Scale, Meta(description="multiplies prompts; fractions are cut off")] = 1.0
    decode_scale_factor: Annotated[Scale, Meta(description="multiplies outputs; fractions are cut off")] = 1.0
    max_tokens: Annotated[Tokens, Meta(description=(
        "of prompt and output together; the excess is cut from both by their shares"))] = 4096
    seed: Seed = 42


class Fixed:
    """`fixed`."""

    Parameters = FixedParameters

    def __init__(self, parameters):
        self._both = parameters.prefill_tokens, parameters.decode_tokens

    def next(self, draws):
        return self._both


class Uniform:
    """`uniform`."""

    Parameters = UniformParameters

    def __init__(self, parameters):
        self._parameters = parameters

    def next(self, draws):
        given = self._parameters
        total = draws.python.uniform(given.min_tokens, given.max_tokens)
        decode = math.ceil(total / (1 + given.prefill_to_decode_ratio))
        return total - decode, decode


class Zipf:
    """`zipf`: as YCSB draws it, with Vidur's sums, which leave out the last term.

    Source: J. Gray et al., Quickly generating billion-record synthetic databases, SIGMOD 1994, figure 6.
    """

    Parameters = ZipfParameters

    def __init__(self, parameters):
        self._parameters, theta = parameters, parameters.theta
        self._items = parameters.max_tokens - parameters.min_tokens + 1
        self._zeta = _zeta(self._items, theta)
        self._power = 1.0 / (1.0 - theta)
        self._eta = (1 - np.power(2.0 / self._items, 1 - theta)) / (1 - _zeta(2, theta) / (self._zeta + LEAST))
        self._generator = np.random.RandomState(parameters.seed)

    def next(self, draws):
        given, total = self._parameters, self._total()
        if given.scramble:
            total = given.min_tokens + python_hash(f"{total}{given.seed}") % self._items
        decode = total / (1 + given.prefill_to_decode_ratio)
        return total - decode, decode

    def _total(self) -> int:
        least, part = self._parameters.min_tokens, self._generator.random_sample()
        if part * self._zeta < 1.0:
            return least
        if part * self._zeta < 1.0 + np.power(0.5, self._parameters.theta):
            return least + 1
        return least + int(self._items * np.power(self._eta * part - self._eta + 1, self._power))


class Trace:
    """`trace`."""

    Parameters = TraceParameters

    def __init__(self, parameters):
        path, names = parameters.trace_file, ("num_prefill_tokens", "num_decode_tokens")
        faults = Faults(path)
        known = {name: Column(Kind.INTEGER, 0, required=True) for name in names}
        scan = scan_columns(path, read_bytes(path), known, names, faults)
        faults.raise_if_any()
        prefill, decode = (np.trunc(scan.values[name] * factor) for name, factor in zip(
            names, (parameters.prefill_scale_factor, parameters.decode_scale_factor), strict=True))
        total = prefill + decode
        excess = np.maximum(total - parameters.max_tokens, 0)
        prefill, decode = (np.maximum(part - np.ceil(excess * (part / np.maximum(total, 1))), 1)
                           for part in (prefill, decode))
        for row in np.flatnonzero(prefill + decode > parameters.max_tokens):
            faults.add(int(scan.lines[row]), f"one token for each of prompt and output are more than max_tokens = "
                       f"{parameters.max_tokens}")
        faults.raise_if_any()
        order = np.random.RandomState(parameters.seed).permutation(len(prefill))
        self._rows = iter(list(zip(prefill[order].tolist(), decode[order].tolist(), strict=True)))

    def next(self, draws):
        return next(self._rows, None)


def _zeta(count: int, theta: float) -> float:
    """Return the sum of 1 / i**theta for i from 1 to `count` - 1."""
    return np.sum(1 / np.power(np.arange(1, count), theta))
