"""Number of drafts that a verify step accepts: drawn, by rates, or as published."""
import math
from itertools import accumulate, pairwise
from operator import mul
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain import measured_acceptance

Rate = Annotated[float, Meta(ge=0, le=1)]
Length = Annotated[float, Meta(ge=1, le=1025)]
FORMS = ("distribution", "rates", "per_position", "mean_length", "measured")
HALVINGS = 60           # bisections of an interval of rates: exact to the last bit


class AcceptanceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Number of accepted drafts, drawn for each verify step.

    Exactly one of the first five keys is given.
    """

    distribution: Annotated[Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(min_length=1)] | None, Meta(
        description="weight of 0, 1, 2, ... accepted drafts in a verify step")] = None
    rates: Annotated[Annotated[tuple[Rate, ...], Meta(min_length=1)] | None, Meta(description=(
        "shares of first, second, ... drafts accepted if all before are; the last one goes on"))] = None
    per_position: Annotated[Annotated[tuple[Rate, ...], Meta(min_length=1)] | None, Meta(extra={
        "unit": "share"}, description=(
        "shares of first, second, ... drafts accepted at all, as vLLM logs them; none above the one before it; the "
        "ratio of the last two goes on"))] = None
    mean_length: Annotated[Length | None, Meta(extra={"unit": "tokens"}, description=(
        "mean tokens per verify step, the bonus token included; all drafts have one acceptance rate"))] = None
    measured: Annotated[str | None, Meta(description=(
        "a published measurement, MODEL/DRAFTER/DATA, for instance deepseek-v3/mtp/mt-bench: `list acceptance` names "
        "all, `describe acceptance NAME` gives the source"))] = None
    length_std: Annotated[Annotated[float, Meta(ge=0, le=1024)], Meta(extra={"unit": "tokens"}, description=(
        "standard deviation over requests of their mean tokens per verify step; the mean over requests is kept"
    ))] = 0.0

    def __post_init__(self):
        given = [form for form in FORMS if getattr(self, form) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of {', '.join(FORMS)}, found {' and '.join(given) or 'none'}")
        if self.distribution is not None and sum(self.distribution) <= 0:
            raise ValueError("distribution: expected a weight above 0, found none")
        if self.measured is not None and (fault := measured_acceptance.fault(self.measured)):
            raise ValueError(f"measured: {fault}")
        shares = self.per_position or ()
        if any(after > before for before, after in pairwise(shares)):
            raise ValueError("per_position: a draft is accepted where the one before it is: expected shares that do "
                             f"not rise, found {list(shares)}")

    def fault(self, num_tokens: int) -> str:
        """Return the fault of the given keys with `num_tokens` drafts a step, or ""."""
        if fault := self._form_fault(num_tokens):
            return fault
        most = variance_of(self.weights(num_tokens)) ** 0.5
        if self.length_std > 0 and self.length_std >= most:
            return (f"length_std: expected less than {most:.6g}, the standard deviation over steps: requests differ no "
                    f"more than steps do, found {self.length_std}")
        return ""

    def _form_fault(self, num_tokens: int) -> str:
        if self.distribution is not None:
            return _too_many(max(i for i, weight in enumerate(self.distribution) if weight), num_tokens)
        if self.mean_length is not None and self.mean_length > num_tokens + 1:
            return f"mean_length: expected at most 1 + num_tokens = {num_tokens + 1}, found {self.mean_length}"
        form = "rates" if self.rates is not None else "per_position"
        count = len(getattr(self, form) or ())
        return f"{form}: expected no more than num_tokens = {num_tokens} of them, found {count}" * (count > num_tokens)

    def weights(self, num_tokens: int) -> tuple[float, ...]:
        """Return the weights of 0, 1, 2, ... accepted drafts of `num_tokens` a step."""
        if self.distribution is not None:
            return self.distribution
        survivals = (1.0, *accumulate(self._conditional(num_tokens), mul), 0.0)
        return tuple(at - after for at, after in pairwise(survivals))

    def concentration(self, num_tokens: int) -> float:
        """Return the concentration of per-request distributions around this one.

        With concentration c, the mean number of accepted drafts of a request has 1 / (c + 1) of the variance of one
        step.
        """
        return variance_of(self.weights(num_tokens)) / self.length_std**2 - 1

    def _conditional(self, num_tokens: int) -> tuple[float, ...]:
        """Return, for each draft, the share accepted if all earlier drafts are."""
        if self.mean_length is not None:
            return (rate_of(self.mean_length, num_tokens),) * num_tokens
        rates, shares = self.rates, self.per_position
        if self.measured is not None:
            measured = measured_acceptance.MEASURED[self.measured]
            shares = measured.shares
            rates = (rate_of(measured.length, measured.num_tokens),) if shares is None else None
        if rates is None:
            rates = tuple(share / last if last else 0.0 for last, share in pairwise((1.0, *shares)))
        return (rates + rates[-1:] * num_tokens)[:num_tokens]


def variance_of(weights: tuple[float, ...]) -> float:
    """Return the variance of the accepted drafts of a step."""
    total = sum(weights)
    mean = sum(i * weight for i, weight in enumerate(weights)) / total
    return sum(weight * (i - mean) ** 2 for i, weight in enumerate(weights)) / total


def rate_of(mean_length: float, num_tokens: int) -> float:
    """Return the acceptance rate per draft that gives a mean length.

    1 + a + a^2 + ... + a^num_tokens = mean_length; 0 tokens mean any number. Source: Leviathan, Kalman, Matias,
    Fast Inference from Transformers via Speculative Decoding, ICML 2023, equation 1.
    """
    if num_tokens == 0:
        return 1 - 1 / mean_length
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        is_below = math.fsum(rate**i for i in range(num_tokens + 1)) < mean_length
        low, high = (rate, high) if is_below else (low, rate)
    return high


def _too_many(accepted: int, num_tokens: int) -> str:
    return (f"no more than num_tokens = {num_tokens} drafts can be accepted, found {accepted}"
            if accepted > num_tokens else "")
