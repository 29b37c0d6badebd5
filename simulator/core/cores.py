"""Cores that this process may use."""
import os


def available_cores() -> int:
    """Return how many cores the system lets this process run on, at least 1."""
    if hasattr(os, "sched_getaffinity"):        # Linux: batch systems and containers pin processes
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
