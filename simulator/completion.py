"""Shell completion of the command line, written by shtab from the parser itself."""
import argparse

from simulator import examples
from simulator.errors import MissingExtra

SHELLS = ("bash", "zsh", "fish")
INSTALL = "pip install 'simulator[completion]'"
FOLDERS = ("DIR", "FOLDER")     # metavars of folders; metavars of files end in one of FILE_ENDINGS
EXAMPLE = ("example", "NAME")   # destination and metavar of the argument that names one
FILE_ENDINGS = ("FILE", ".toml", ".csv", ".json")


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the text that a shell reads to complete the commands of a parser.

    Parameters
    ----------
    parser : with the arguments of all its commands.
    shell : one of `SHELLS`.

    Raises
    ------
    MissingExtra
        shtab is not installed.
    """
    try:
        import shtab
    except ImportError:
        raise MissingExtra([f"completion needs shtab: install it with {INSTALL}"]) from None
    for action in _actions(parser):
        if (action.dest, action.metavar) == EXAMPLE:    # not known to argparse: its message would not name the nearest
            action.choices = examples.names()
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if metavar in FOLDERS:
            action.complete = shtab.DIRECTORY
        elif metavar.endswith(FILE_ENDINGS):
            action.complete = shtab.FILE
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser):
    for action in parser._actions:      # argparse has no other way to ask
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
