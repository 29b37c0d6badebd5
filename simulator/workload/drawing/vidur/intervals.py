"""Vidur's gaps between arrivals.

A generator is built as `Generator(parameters)` and has one method, `next_s(draws)`: the gap before the next request in
seconds; None: there is no next one.
"""
import math
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.files import read_bytes
from simulator.workload.reading.tables import read_column

Qps = Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "1/s"}, description="mean requests per second")]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PoissonParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exponential gaps cut at 3 / qps, which makes the mean 5 % less than 1 / qps."""

    qps: Qps = 0.5


class GammaParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gaps of a Gamma distribution of shape 1 / cv**2."""

    qps: Qps = 0.2
    cv: Annotated[float, Meta(ge=0.001, le=100, description="standard deviation of the gaps over their mean")] = 0.5


class TraceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gaps between the rows of a file, in whole seconds; the first row is not sent."""

    trace_file: Annotated[str, Meta(extra={"path": True}, description="CSV with calendar times in column arrival_time")]
    start_time: Annotated[str, Meta(description="only rows after this time")] = "1970-01-04 12:00:00"
    end_time: Annotated[str, Meta(description="only rows before this time")] = "1970-01-04 15:00:00"
    time_scale_factor: Annotated[float, Meta(gt=0, le=1e9, description="multiplies the gaps")] = 1.0

    def __post_init__(self):
        for key in ("start_time", "end_time"):
            try:
                _since_1970_ns(getattr(self, key))
            except ValueError:
                found = getattr(self, key)
                raise ValueError(f"{key}: {found} is no time like 1970-01-04 12:00:00") from None


class Poisson:
    """`poisson`."""

    Parameters = PoissonParameters

    def __init__(self, parameters):
        self._qps, self._longest_s = parameters.qps, 1.0 / parameters.qps * 3.0

    def next_s(self, draws):
        return min(-math.log(1.0 - draws.python.random()) / self._qps, self._longest_s)


class Gamma:
    """`gamma`."""

    Parameters = GammaParameters

    def __init__(self, parameters):
        self._shape = 1.0 / parameters.cv ** 2
        self._scale = 1.0 / (parameters.qps * self._shape)

    def next_s(self, draws):
        return draws.numpy.standard_gamma(self._shape) * self._scale


class Static:
    """`static`: all at once."""

    def __init__(self, parameters):
        pass

    def next_s(self, draws):
        return 0.0


class Trace:
    """`trace`."""

    Parameters = TraceParameters

    def __init__(self, parameters):
        times_ns = read_column(parameters.trace_file, read_bytes(parameters.trace_file), "arrival_time",
                               Column(Kind.TIMESTAMP, 0, MAX_TIME_NS, required=True))
        inside = (times_ns > _since_1970_ns(parameters.start_time)) & (times_ns < _since_1970_ns(parameters.end_time))
        times_ns = times_ns[inside]
        seconds = (times_ns - times_ns.min(initial=MAX_TIME_NS)) // 10**9 * parameters.time_scale_factor
        self._gaps_s = iter(np.diff(seconds).tolist())

    def next_s(self, draws):
        return next(self._gaps_s, None)


def _since_1970_ns(text: str) -> int:
    """Return a time in ns since 1970; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
