"""Money, power and carbon in an experiment: schemas of [prices], [power], [carbon] and [electricity]."""
import math
from datetime import date
from typing import Annotated

import msgspec
from msgspec import Meta

HOURS = 24                      # of a day

Text = Annotated[str, Meta(min_length=1)]
Day = Annotated[str, Meta(pattern=r"\d{4}-\d{2}-\d{2}")]
Watts = Annotated[float, Meta(ge=0, le=1e9, extra={"unit": "W"})]
GramsPerKwh = Annotated[float, Meta(ge=0, le=1e6, extra={"unit": "g/kWh"})]
PerGpuHour = Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "1/h"})]
PerKwh = Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "1/kWh"})]
Day24 = Meta(min_length=HOURS, max_length=HOURS)
Hour = Annotated[int, Meta(ge=0, le=HOURS - 1, extra={"unit": "h"})]
Numbers = float | tuple[float, ...]     # one for all hours, or one for each hour of the day


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Price of an accelerator, one of [prices]; its name is that of [hardware].

    Of a price by hour the cost of a run has each hour's; autoscalers that compare pools, searches that compare
    deployments before a run, and rewards of `simulator.gym` have the mean.
    """

    per_gpu_hour: Annotated[PerGpuHour | Annotated[tuple[PerGpuHour, ...], Day24], Meta(description=(
        "price of one accelerator for an hour; or 24 numbers, one for each hour of the day"))]
    starts_at_hour: Annotated[Hour | None, Meta(description=(
        "hour of the day at simulated time 0; goes with 24 numbers; default: 0"))] = None
    currency: Annotated[Text, Meta(description="currency; all of [prices] have one currency")]
    source: Annotated[Text, Meta(description="source of the price")]
    date: Annotated[Day, Meta(description="date of the price, year-month-day: prices age")]

    def __post_init__(self):
        check_day(self.date)
        check_hour(self.starts_at_hour, self.per_gpu_hour, "per_gpu_hour")


class Power(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Power of an accelerator, one of [power]; its name is that of [hardware].

    A missing value or 0 means not measured: published tables are full of zeros that are no measurement.
    """

    idle_w: Annotated[Watts | None, Meta(description=(
        "power while the accelerator is paid for and computes nothing"))] = None
    prefill_w: Annotated[Watts | None, Meta(description="power in iterations that compute prompts")] = None
    decode_w: Annotated[Watts | None, Meta(description="power in iterations without prompts")] = None
    source: Annotated[Text, Meta(description="source of idle_w, prefill_w and decode_w")]
    host_w: Annotated[Watts | None, Meta(description=(
        "power of a node without its accelerators; takes topology.node: a replica has the share of its "
        "accelerators"))] = None
    host_source: Annotated[Text | None, Meta(description="source of host_w")] = None
    pue: Annotated[Annotated[float, Meta(ge=1, le=100, extra={"unit": "ratio"})] | None, Meta(description=(
        "power usage effectiveness of the building: all its energy / energy of its machines; 1.0: machines "
        "alone"))] = None
    pue_source: Annotated[Text | None, Meta(description="source of pue")] = None

    def __post_init__(self):
        for name in ("host", "pue"):
            key = "host_w" if name == "host" else "pue"
            if (getattr(self, key) is None) != (getattr(self, f"{name}_source") is None):
                raise ValueError(f"{key} and {name}_source go together: give both or neither")

    def measured(self, key: str) -> float | None:
        """Return one of the powers; None where it is not known."""
        return getattr(self, key) or None


class Carbon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Emissions of a kilowatt-hour, [carbon]; takes [power] with a pue."""

    g_per_kwh: Annotated[GramsPerKwh | Annotated[tuple[GramsPerKwh, ...], Day24], Meta(description=(
        "grams of CO2; or 24 numbers, one for each hour of the day"))]
    starts_at_hour: Annotated[Hour | None, Meta(description=(
        "hour of the day at simulated time 0; goes with 24 numbers; default: 0"))] = None
    source: Annotated[Text, Meta(description="source of the numbers")]
    region: Annotated[Text, Meta(description="region of the grid")]
    date: Annotated[Day, Meta(description="date of the numbers, year-month-day")]

    def __post_init__(self):
        check_day(self.date)
        check_hour(self.starts_at_hour, self.g_per_kwh, "g_per_kwh")


class Electricity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Price of a kilowatt-hour, [electricity]; takes [power] with a pue."""

    per_kwh: Annotated[PerKwh | Annotated[tuple[PerKwh, ...], Day24], Meta(description=(
        "price of energy drawn by the building; or 24 numbers, one for each hour of the day"))]
    starts_at_hour: Annotated[Hour | None, Meta(description=(
        "hour of the day at simulated time 0; goes with 24 numbers; default: 0"))] = None
    currency: Annotated[Text, Meta(description="currency of the price")]
    source: Annotated[Text, Meta(description="source of the price")]
    date: Annotated[Day, Meta(description="date of the price, year-month-day")]

    def __post_init__(self):
        check_day(self.date)
        check_hour(self.starts_at_hour, self.per_kwh, "per_kwh")


def check_day(text: str) -> None:
    """Raise ValueError if the text is not a date of the calendar."""
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"date: {text}: {error}") from None


def check_hour(starts_at_hour: int | None, numbers: Numbers, key: str) -> None:
    """Raise ValueError if there is an hour, and one number for all hours."""
    if starts_at_hour is not None and not isinstance(numbers, tuple):
        raise ValueError(f"starts_at_hour goes with 24 numbers in {key}, found one for all hours")


def from_the_start(numbers: Numbers, starts_at_hour: int | None) -> Numbers:
    """Return numbers by hour of the day in the order of a run; one number stays one.

    The first is that of simulated time 0. starts_at_hour : hour of the day at simulated time 0; None: 0.
    """
    if not isinstance(numbers, tuple):
        return numbers
    first = starts_at_hour or 0
    return numbers[first:] + numbers[:first]


def mean_of(numbers: Numbers) -> float:
    """Return the mean over the day."""
    return math.fsum(numbers) / HOURS if isinstance(numbers, tuple | list) else numbers
