"""Units of times that count from 1970."""
EPOCH = (1e9, 1e10)         # seconds since 1970, from 2001 to 2286: too late for a trace that counts from its own start
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def epoch_unit_s(first: float, unit: str) -> float:
    """Return the unit of times, s.

    If the first time is an epoch time in some unit, that is the unit, else the default.
    first : the first time of a trace.
    unit : the default.
    """
    for unit_s in UNITS_S.values():
        if EPOCH[0] <= first * unit_s < EPOCH[1]:
            return unit_s
    return UNITS_S[unit]


def unit_note(path, column: str, unit_s: float, unit: str) -> tuple[str, ...]:
    """Return a note where times count in another unit than the format has.

    unit_s : of the times. unit : of the format.
    """
    found = next(name for name, each in UNITS_S.items() if each == unit_s)
    return () if found == unit else (f"{path}: {column} counts from 1970 in {found}, not in {unit}.",)
