"""`python -m simulator watch DIR`: the progress of a run, a study or a live fleet as a page, read only."""
import argparse
from pathlib import Path
from typing import Any

from simulator.core.paths import place_of
from simulator.errors import InputErrors
from simulator.study.explore_command import add_page_options, serve
from simulator.study.exploring.watching import Watched


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("place", metavar="DIR", help=(
        "directory of results or of a study, there already or not yet; or the address of a live fleet, as `serve` "
        "prints it: http://127.0.0.1:8000"))
    add_page_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C; return the exit status.

    Raises
    ------
    InputErrors
        The port is taken, or no name of a directory is given, or that of a file.
    """
    is_live = options.place.startswith(("http://", "https://"))
    watched = Watched(options.place if is_live else str(_folder(options.place)))

    def state(asked: dict[str, Any]) -> dict[str, Any]:
        return watched.state()

    return serve(options, "watch.html", {"/api/watch": state})


def _folder(name: str) -> Path:
    """Return the place of a folder, which may not be there yet."""
    path = Path(place_of(name)).resolve()
    if path.exists() and not path.is_dir():
        raise InputErrors([f"{name}: a file, expected a directory of results or of a study"])
    return path
