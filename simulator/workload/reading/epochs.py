"""Units of times that count from 1970."""
EPOCH = (1e9, 1e10)         # seconds since 1970, from 2001 to 2286: what no trace begins with that counts from itself
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def epoch_unit_s(first: float, unit: str) -> float:
    """Return the unit of times, s.

    That is the one of an epoch time where the first time is one, else what is said.

    first : of a trace.
    unit : what its times count in otherwise.
    """
    for unit_s in UNITS_S.values():
        if EPOCH[0] <= first * unit_s < EPOCH[1]:
            return unit_s
    return UNITS_S[unit]
