"""The axes of a study: keys of the experiment that vary, and their values.

An axis is a list of values, `{from, to, steps, scale}` on a grid, or `{from, to, scale}` where a design draws, or a
sampler. A value that is a table sets several keys together: the axis "topology" over
`{tensor_parallel = 2, replicas = 2}`.
"""
import math
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from simulator.config.experiment import Section
from simulator.config.fields import table_of
from simulator.config.words import show
from simulator.errors import did_you_mean, nearest

MOST_STEPS = 10**6
Scale = Literal["linear", "log"]
# `from` is no name of an attribute in a class statement.
Range = msgspec.defstruct("Range", [
    ("from", Annotated[float, Meta(description="first value, included; whole numbers where both ends are")]),
    ("to", Annotated[float, Meta(description="last value, included")]),
    ("steps", Annotated[Annotated[int, Meta(ge=1, le=MOST_STEPS)] | None, Meta(description=(
        "how many values; none where the design draws them; with search = \"optuna\" absent: any value"))], None),
    ("scale", Annotated[Scale, Meta(description="equal differences, or equal quotients, between values")], "linear"),
], bases=(Section,), kw_only=True, frozen=True, namespace={"__doc__": (
    "An axis as a range, [study.axes]; or a list of values, or of tables with several keys.")})
RANGE_KEYS = tuple(each.name for each in table_of(Range).fields)


class Axis(NamedTuple):
    """One axis.

    key : dotted, of the experiment. values : in the order of the file; empty: a range.
    low, high, is_log, is_whole : of a range, both ends included; whole numbers where both ends are.
    """

    key: str
    values: tuple
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    is_whole: bool = False

    def at(self, share: float) -> Any:
        """Return the value at a share of the axis, from 0 to 1.

        Of a list it is the value of the stratum into which the share falls.
        """
        if self.values:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        if self.is_log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        value = min(max(value, self.low), self.high)        # rounding may not leave the range
        return round(value) if self.is_whole else value


def axis_of(key: str, given: Any, draws: bool, takes_both: bool = False) -> Axis | str:
    """Return an axis, or the fault as a text.

    Parameters
    ----------
    given : value in the study file.
    draws : whether the design takes values between the ends of a range.
    takes_both : whether ranges with steps and without go, beside a design that does not draw.
    """
    if isinstance(given, list):
        if not given:
            return "expected at least one value"
        return Axis(key, tuple(given))
    if not isinstance(given, dict):
        return f"expected a list of values, or a table with from and to; found {show(given)}"
    if unknown := [f"{name}{did_you_mean(name, RANGE_KEYS)}" for name in given if name not in RANGE_KEYS]:
        return f"unknown key {'; '.join(unknown)}"
    fault = _fault_of_range(given, draws or (takes_both and given.get("steps") is None))
    return fault or _of_range(key, given)


def _fault_of_range(given: dict, draws: bool) -> str:
    ends = [given.get("from"), given.get("to")]
    if not all(isinstance(end, (int, float)) and not isinstance(end, bool) and math.isfinite(end) for end in ends):
        return f"expected numbers from and to; found {show(given.get('from'))} and {show(given.get('to'))}"
    if ends[0] > ends[1]:
        return f"expected from <= to, found {show(ends[0])} and {show(ends[1])}"
    if (scale := given.get("scale", "linear")) not in get_args(Scale):
        return (f"scale: expected one of {', '.join(map(show, get_args(Scale)))}; found {show(scale)}"
                f"{nearest(str(scale), get_args(Scale))}")
    if scale == "log" and ends[0] <= 0:
        return f"expected from > 0 with scale = \"log\", found {show(ends[0])}"
    steps = given.get("steps")
    if draws and steps is not None:
        return "steps: expected none: this design draws `points` values between the ends"
    if not draws and not (isinstance(steps, int) and not isinstance(steps, bool) and 1 <= steps <= MOST_STEPS):
        return f"steps: expected an integer from 1 to {MOST_STEPS}, found {'none' if steps is None else show(steps)}"
    return ""


def _of_range(key: str, given: dict) -> Axis:
    low, high = given["from"], given["to"]
    whole = isinstance(low, int) and isinstance(high, int)
    axis = Axis(key, (), low, high, given.get("scale", "linear") == "log", whole)
    if "steps" not in given:
        return axis if low < high else Axis(key, (low,))
    steps = given["steps"]
    values = [axis.at(i / (steps - 1)) if steps > 1 else low for i in range(steps)]
    if steps > 1:
        values[-1] = high                       # exactly the end, without a rounding error
    return Axis(key, tuple(dict.fromkeys(values)))      # whole numbers may coincide
