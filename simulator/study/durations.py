"""Durations as users write them: 30s, 55m, 2h; a plain number is seconds."""
import argparse
import re

UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(text: str) -> float:
    """Return seconds.

    Raises
    ------
    argparse.ArgumentTypeError
        The text is no duration.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a duration as 30s, 55m or 2h, found {text!r}")
    return float(match[1]) * UNITS_S[match[2]]
