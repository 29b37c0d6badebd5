"""The option --dask of studies."""
import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from simulator.study.distributed.dask_client import client_of
from simulator.study.distributed.trials import at_workers


def add_dask(parser: argparse.ArgumentParser) -> None:
    """Add the option to the parser of a command."""
    parser.add_argument("--dask", metavar="PLACE", help=(
        "run at the workers of Dask: local, a scheduler's address, or its JSON file"))


def elsewhere(place: str | None, opened: ExitStack, stop: Callable[[], bool] = lambda: False) -> Any:
    """Return a function that runs trials at workers; None: without `--dask`.

    opened : closes the client. stop : True: no further run is sent.

    Raises
    ------
    InputErrors
        As `client_of`.
    """
    if place is None:
        return None
    return at_workers(opened.enter_context(client_of(place, partial(print, file=sys.stderr))), stop)
