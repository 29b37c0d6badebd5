"""What an experiment says of money, power and carbon: [prices], [power], [carbon] and [electricity]."""
from datetime import date
from typing import Annotated

import msgspec
from msgspec import Meta

HOURS = 24                      # of a day, of a table of carbon

Text = Annotated[str, Meta(min_length=1)]
Day = Annotated[str, Meta(pattern=r"\d{4}-\d{2}-\d{2}")]
Watts = Annotated[float, Meta(ge=0, le=1e9, extra={"unit": "W"})]
GramsPerKwh = Annotated[float, Meta(ge=0, le=1e6, extra={"unit": "g/kWh"})]


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an accelerator costs, one of [prices]; its name is that of [hardware]."""

    per_gpu_hour: Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "1/h"}, description="of one accelerator")]
    currency: Annotated[Text, Meta(description="the same in all of [prices]")]
    source: Annotated[Text, Meta(description="who says so")]
    date: Annotated[Day, Meta(description="when, year-month-day: prices age")]

    def __post_init__(self):
        check_day(self.date)


class Power(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an accelerator draws, one of [power]; its name is that of [hardware].

    Absent, and 0, is not measured: published tables are full of zeros that are no measurement.
    """

    idle_w: Annotated[Watts | None, Meta(description="while it is paid for and computes nothing")] = None
    prefill_w: Annotated[Watts | None, Meta(description="in iterations that compute prompts")] = None
    decode_w: Annotated[Watts | None, Meta(description="in iterations that compute none")] = None
    source: Annotated[Text, Meta(description="who says so, of the three")]
    host_w: Annotated[Watts | None, Meta(description=(
        "of a node, its accelerators aside; takes topology.node: a replica has the share of its accelerators"))] = None
    host_source: Annotated[Text | None, Meta(description="who says so")] = None
    pue: Annotated[Annotated[float, Meta(ge=1, le=100, extra={"unit": "ratio"})] | None, Meta(description=(
        "of the building: all its energy / that of its machines; 1.0: these alone"))] = None
    pue_source: Annotated[Text | None, Meta(description="who says so")] = None

    def __post_init__(self):
        for name in ("host", "pue"):
            key = "host_w" if name == "host" else "pue"
            if (getattr(self, key) is None) != (getattr(self, f"{name}_source") is None):
                raise ValueError(f"{key} and {name}_source go together: give both or neither")

    def measured(self, key: str) -> float | None:
        """Return one of its powers; None where it is not known."""
        return getattr(self, key) or None


class Carbon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a kilowatt-hour emits, [carbon]; takes [power] with a pue."""

    g_per_kwh: Annotated[GramsPerKwh | Annotated[tuple[GramsPerKwh, ...], Meta(min_length=HOURS, max_length=HOURS)],
                         Meta(description="grams of CO2; or 24 numbers, one for each hour of the day")]
    starts_at_hour: Annotated[Annotated[int, Meta(ge=0, lt=HOURS, extra={"unit": "h"})] | None, Meta(description=(
        "of the day at simulated time 0; goes with 24 numbers; default: 0"))] = None
    source: Annotated[Text, Meta(description="who says so")]
    region: Annotated[Text, Meta(description="of the grid")]
    date: Annotated[Day, Meta(description="of the numbers, year-month-day")]

    def __post_init__(self):
        check_day(self.date)
        if self.starts_at_hour is not None and not self.by_hour:
            raise ValueError("starts_at_hour goes with 24 numbers in g_per_kwh, found one for all hours")

    @property
    def by_hour(self) -> bool:
        """Whether hours differ."""
        return isinstance(self.g_per_kwh, tuple)


class Electricity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a kilowatt-hour costs, [electricity]; takes [power] with a pue."""

    per_kwh: Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "1/kWh"}, description="of what the building draws")]
    currency: Annotated[Text, Meta(description="of the price")]
    source: Annotated[Text, Meta(description="who says so")]
    date: Annotated[Day, Meta(description="when, year-month-day")]

    def __post_init__(self):
        check_day(self.date)


def check_day(text: str) -> None:
    """Refuse what is no day of the calendar."""
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"date: {text}: {error}") from None
