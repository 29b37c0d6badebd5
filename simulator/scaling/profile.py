"""Profiles of prefill and decode replicas, measured point by point; between points values are interpolated."""
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

Positive = Annotated[float, Meta(gt=0, le=1e12)]
Tokens = Annotated[float, Meta(ge=0, le=1e9)]


class PrefillPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured performance of a prefill replica with prompts of one length."""

    prompt_tokens: Annotated[Tokens, Meta(description=(
        "length of each prompt; between two points values are interpolated"))]
    ttft_ms: Annotated[Positive, Meta(description="time to first token of a prompt that is alone")]
    tokens_per_s: Annotated[Positive, Meta(description="prompt tokens per second, for each accelerator")]


class DecodePoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured performance of a decode replica at one concurrency and context."""

    context_tokens: Annotated[Tokens, Meta(description=(
        "context of each request; between two points values are interpolated"))]
    concurrency: Annotated[Positive, Meta(description=(
        "concurrent requests; between two points values are interpolated"))]
    itl_ms: Annotated[Positive, Meta(description="time between two tokens of a request")]
    tokens_per_s: Annotated[Positive, Meta(description="output tokens per second, for each accelerator")]


class Profile:
    """Performance of one prefill and one decode replica.

    prefill, decode : points, as `check_points` accepts them.
    """

    def __init__(self, prefill: tuple[PrefillPoint, ...], decode: tuple[DecodePoint, ...]):
        self._prefill, self._decode = prefill, decode

    def ttft_ms(self, isl: float) -> float:
        """Return the time to first token of a prompt that is alone."""
        return self._of_prompt("ttft_ms", isl)

    def prefill_tokens_per_s(self, isl: float) -> float:
        """Return the prompt tokens that an accelerator computes in a second."""
        return self._of_prompt("tokens_per_s", isl)

    def _of_prompt(self, name, isl):
        points = sorted(self._prefill, key=lambda point: point.prompt_tokens)
        lengths, values = zip(*((point.prompt_tokens, getattr(point, name)) for point in points), strict=True)
        return float(np.interp(isl, lengths, values))

    def expected_itl_ms(self, concurrency: float, context: float) -> float:
        """Return the time between two tokens of as many requests."""
        levels, itl_ms, _ = self._levels(context)
        return float(np.interp(concurrency, levels, itl_ms))

    def decode_tokens_per_s(self, itl_ms: float, context: float) -> float:
        """Return the most output tokens of an accelerator in a second within a bound."""
        levels, itls, rates = self._levels(context)
        best = 0
        while best + 1 < len(levels) and itls[best + 1] <= itl_ms:
            best += 1
        if best + 1 == len(levels) or itls[best] >= itl_ms:
            return rates[best]
        share = (itl_ms - itls[best]) / (itls[best + 1] - itls[best])
        return rates[best] + share * (rates[best + 1] - rates[best])

    def _levels(self, context):
        """Return the concurrencies of the profile, and time between tokens and throughput of each at a context."""
        levels = sorted({point.concurrency for point in self._decode})
        found = {"itl_ms": [], "tokens_per_s": []}
        for level in levels:
            points = sorted((point for point in self._decode if point.concurrency == level),
                            key=lambda point: point.context_tokens)
            for name, values in found.items():
                values.append(float(np.interp(context, [point.context_tokens for point in points],
                                              [getattr(point, name) for point in points])))
        return levels, found["itl_ms"], found["tokens_per_s"]


def check_points(prefill: tuple[PrefillPoint, ...], decode: tuple[DecodePoint, ...]) -> None:
    """Raise ValueError unless values can be interpolated between the points."""
    seen = {}
    for point in decode:
        seen.setdefault(point.concurrency, []).append(point.context_tokens)
    contexts = {tuple(sorted(each)) for each in seen.values()}
    if len(contexts) > 1 or any(len(set(each)) < len(each) for each in contexts):
        raise ValueError("decode_profile: give each concurrency at the same context_tokens, and each pair once")
    lengths = [point.prompt_tokens for point in prefill]
    if len(set(lengths)) < len(lengths):
        raise ValueError("prefill_profile: give each prompt_tokens once")
