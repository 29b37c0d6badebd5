"""Schemas of [cluster.cooldown], [cluster.breaker] and [cluster.retry]: proxies before replicas that fail."""
from collections import deque
from typing import Annotated

import msgspec
from msgspec import Meta

MAX_S = 1e6
Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Meta(gt=0, le=MAX_S)]

TOO_MANY, TIMEOUT, PAYMENT = 429, 408, 402
NEVER_RETRIED = (401, PAYMENT, 404)         # by LiteLLM, so that such an answer cools at once
LEAST_BROKEN = 1000                         # requests in a minute that all failed


class Cooldown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replicas that get no requests for a while after failures, [cluster.cooldown].

    A failure is a request that its client gave up at a replica (408), that the engine refused for a full queue (503),
    or that lost its replica (500). Failures and completed requests are counted in each minute of the clock. A replica
    cools down if there are others and more than failed_share of at least min_requests failed, or if all of 1000 failed.
    Source: LiteLLM 1.110.2 (litellm/router_utils/cooldown_handlers.py).
    """

    seconds: Annotated[Seconds, Meta(extra={"unit": "s"}, description=(
        "time for which a replica gets no requests, from its last failure that cools it down"))] = 5.0
    failed_share: Annotated[Share, Meta(extra={"unit": "share"}, description=(
        "share of the requests of a minute above which failures cool a replica down"))] = 0.5
    min_requests: Annotated[Number, Meta(description=(
        "requests of a minute from which failed_share holds"))] = 5
    allowed_fails: Annotated[Annotated[int, Meta(ge=0, le=2**31 - 1)] | None, Meta(description=(
        "in place of failed_share and min_requests: failures of a minute above which a replica cools down, unless it "
        "is the only one"))] = None

    def __post_init__(self):
        if self.allowed_fails is not None and (self.failed_share, self.min_requests) != (0.5, 5):
            raise ValueError("give either allowed_fails, or failed_share and min_requests")

    @staticmethod
    def considers(status: int) -> bool:
        """Return whether an answer with this HTTP status counts as a failure."""
        return status in (TOO_MANY, TIMEOUT, *NEVER_RETRIED) or status >= 500

    def cools(self, status: int, successes: int, failures: int, replicas: int) -> bool:
        """Return whether a failure cools its replica down.

        status : HTTP status of the answer. successes, failures : of the replica in this minute, with this failure.
        replicas : number behind the gateway.
        """
        total, is_alone = successes + failures, replicas < 2
        if not self.considers(status):
            return False
        if self.allowed_fails is not None:
            return failures > self.allowed_fails and not is_alone
        if status in NEVER_RETRIED:
            return not (is_alone and status == PAYMENT)
        if total >= LEAST_BROKEN and successes == 0:
            return True
        return not is_alone and (status == TOO_MANY or (
            total >= self.min_requests and failures / total > self.failed_share))


class Breaker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Circuit breakers of replicas, [cluster.breaker].

    Failures are as in [cluster.cooldown]. After as many as `failures` within window_s a replica gets no requests for
    open_s. Then it gets requests on trial: a failure begins the next open_s, and `successes` completed requests end the
    trial. Source: SGLang's gateway 0.3.2 (sgl-model-gateway).
    """

    failures: Annotated[Number, Meta(description="failures within the window that open the breaker")] = 10
    window_s: Annotated[Seconds, Meta(description="window in which failures are counted")] = 120.0
    open_s: Annotated[Seconds, Meta(description="time for which the replica gets no requests")] = 60.0
    successes: Annotated[Number, Meta(description="completed requests on trial that close the breaker")] = 3


class Circuit:
    """The breaker of one replica: closed, open, or on trial."""

    def __init__(self, breaker: Breaker):
        self._breaker, self._failed_ns = breaker, deque()
        self.is_open, self.successes_left = False, 0        # successes_left > 0: on trial

    def fails(self, now_ns: int) -> bool:
        """Note a failure; return whether the breaker opens."""
        if self.is_open:
            return False
        self._failed_ns.append(now_ns)
        while self._failed_ns[0] <= now_ns - round(self._breaker.window_s * 1e9):
            self._failed_ns.popleft()
        self.is_open = self.successes_left > 0 or len(self._failed_ns) >= self._breaker.failures
        return self.is_open

    def try_again(self) -> None:
        """Begin the trial after open_s."""
        self.is_open, self.successes_left = False, self._breaker.successes
        self._failed_ns.clear()

    def succeeds(self) -> None:
        """Note a completed request on trial."""
        self.successes_left -= 1


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Waits before a lost request is sent elsewhere, [cluster.retry].

    Retry k, from 0, waits min(backoff_s x factor^k, max_s), times a factor drawn from 1 - jitter to 1 + jitter.
    Source: SGLang's gateway 0.3.2 (sgl-model-gateway).
    """

    attempts: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "times that a request is sent elsewhere, at most; failures.max_retries holds, too"))] = 5
    backoff_s: Annotated[float, Meta(ge=0, le=MAX_S, description="wait before the first retry")] = 0.05
    factor: Annotated[float, Meta(ge=1, le=1000, description="growth of the wait from one retry to the next")] = 1.5
    max_s: Annotated[float, Meta(ge=0, le=MAX_S, description="longest wait, jitter aside")] = 30.0
    jitter: Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"}, description=(
        "largest random change of a wait, as a share of it"))] = 0.2

    def delay_ns(self, retry: int, uniform: float) -> int:
        """Return the wait before a retry, counted from 0; uniform : drawn from [0, 1)."""
        wait_s = self.backoff_s
        while retry > 0 and 0 < wait_s < self.max_s and self.factor > 1:
            wait_s, retry = wait_s * self.factor, retry - 1
        return round(min(wait_s, self.max_s) * (1 + self.jitter * (2 * uniform - 1)) * 1e9)
