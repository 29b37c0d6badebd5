"""Notes on instants and intervals that lie beyond the end of a run."""


def late_note(key: str, first_s: float, clock_s: float, event: str) -> list[str]:
    """Return a note that a run ended before the first event of a key, if it did.

    first_s : instant of the event, the value of the key. clock_s : end of the run. event : with its article.
    """
    if first_s <= clock_s:
        return []
    return [f"{key} = {first_s:g}: the run ended after {clock_s:,.4g} s, before {event}"]
