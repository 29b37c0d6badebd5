"""`python -m simulator explore [EXPERIMENT.toml]`: a page of controls and answers."""
import argparse
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from simulator.config.layers import read_layers
from simulator.core.argument_types import port_number
from simulator.domain.facts import shipped
from simulator.errors import InputErrors
from simulator.study.exploring.answering import Source
from simulator.study.exploring.desk import Desk
from simulator.study.exploring.server import PageServer, is_loopback

DONE = 0
LOOPBACK = "127.0.0.1"
FIRST = "quickstart.toml"       # in configs/, where no file is given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml", nargs="?",
                        help=f"experiment to begin with; default: the included {FIRST}")
    add_page_options(parser)


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a served page."""
    parser.add_argument("--port", type=port_number, default=8050, metavar="N",
                        help="port, 0: any free one; default 8050")
    parser.add_argument("--host", default=LOOPBACK, metavar="ADDRESS", help=(
        f"address of this machine alone to listen at; default {LOOPBACK}; from elsewhere through a tunnel: ssh -L"))
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C; return the exit status.

    Raises
    ------
    InputErrors
        The file cannot be read, or the port is taken.
    """
    file = Path(options.experiment) if options.experiment else shipped("configs") / FIRST
    read_layers(file)           # that it is there, and TOML; faults of the experiment are shown by the page
    desk = Desk(Source(file.read_text(encoding="utf-8-sig"), str(file)))
    threading.Thread(target=desk.begin, daemon=True).start()
    return serve(options, "explore.html", desk.questions)


def serve(options: argparse.Namespace, page: str, questions: dict[str, Callable]) -> int:
    """Serve a page until Ctrl-C.

    Raises
    ------
    InputErrors
        Other machines could reach the address, or it is taken.
    """
    if not is_loopback(options.host):
        raise InputErrors([f"--host {options.host}: other machines can reach it, and the page runs code: expected an "
                           "address of this machine, for instance 127.0.0.1; use a tunnel"])
    try:
        server = PageServer((options.host, options.port), page, questions)
    except OSError as error:
        raise InputErrors([f"--port {options.port}: {error.strerror}; --port 0 takes any free one"]) from None
    with server:
        print(f"open {server.address}\nCtrl-C ends it", flush=True)
        if options.open:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return DONE
