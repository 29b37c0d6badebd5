"""Values of options as users write them: durations (30s, 55m, 2h; a plain number is seconds) and counts."""
import argparse
import re

LAST_PORT = 65535
UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(text: str) -> float:
    """Return seconds.

    Raises argparse.ArgumentTypeError: the text is no duration.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a duration as 30s, 55m or 2h, found {text!r}")
    return float(match[1]) * UNITS_S[match[2]]


def whole_number(text: str) -> int:
    """Return a whole number from 1 on.

    Raises argparse.ArgumentTypeError: the text is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return int(text)


def port_number(text: str) -> int:
    """Return the number of a port, 0: any free one.

    Raises argparse.ArgumentTypeError: the text is none.
    """
    if not text.isdecimal() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to {LAST_PORT}, found {text!r}")
    return int(text)
