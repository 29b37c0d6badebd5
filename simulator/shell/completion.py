"""Shell completion of the command line: commands and options by shtab from the parser, names by functions here."""
import argparse

from simulator.errors import MissingExtra
from simulator.shell import examples

SHELLS = ("bash", "zsh", "fish")
INSTALL = "pip install 'simulator[completion]'"
FOLDERS = ("DIR", "DIR2", "FOLDER", "DATA")     # metavars of folders; metavars of files end in one of FILE_ENDINGS
EXAMPLE = ("example", "NAME")   # destination and metavar of the argument with an example's name
FILE_ENDINGS = ("FILE", ".toml", ".csv", ".json", "WORKLOAD")
# (Destination, metavar) of an argument -> the kind of its names, a key of `completion_names.completers`.
NAMED = {("model", "MODEL"): "model", ("hardware", "HARDWARE"): "hardware", ("node", "NAME"): "node",
         ("gpu", "NAME"): "hardware",
         ("backend", "NAME"): "latency", ("backends", "NAME"): "latency", ("vary", "KEY"): "key",
         ("overrides", "SECTION.KEY=VALUE"): "setting", ("slo", "KEY=LIMIT"): "bound",
         ("kind", "KIND"): "described", ("name", "NAME"): "described"}


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
    from simulator.shell.completion_names import all_names, completers, functions  # imports all policies

    known, setting = completers(), []
    for command, action in _actions(parser):
        named = NAMED.get((action.dest, action.metavar if isinstance(action.metavar, str) else ""))
        if named == "setting":
            setting.append(command)
        if (action.dest, action.metavar) == EXAMPLE:    # hidden from argparse: its message would suggest no name
            action.choices = examples.names()
        elif named is not None and shell in known[named]:
            action.complete = known[named]
        elif named is None:
            _complete_path(action, shtab)
    return _joined(shtab.complete(parser, shell), functions(shell, all_names()), shell, setting)


def _complete_path(action: argparse.Action, shtab) -> None:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar in FOLDERS:
        action.complete = shtab.DIRECTORY
    elif metavar.endswith(FILE_ENDINGS):
        action.complete = shtab.FILE


def _joined(commands: str, names: str, shell: str, setting: list[str]) -> str:
    """Return one script; later definitions override earlier ones, but zsh's first line is its #compdef header."""
    if shell == "zsh":
        first, _, rest = commands.partition("\n")
        return f"{first}\n{names}\n{rest}"
    if shell == "fish":
        return f"{names}\n{commands}"
    return f"{commands}\n_simulator_sets() {{ [[ ' {' '.join(setting)} ' == *\"$1\"* ]]; }}\n{names}"


def _actions(parser: argparse.ArgumentParser, command: str = ""):
    """Yield all actions, each with the first word of its command."""
    for action in parser._actions:      # argparse has no public interface for it
        yield command, action
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _actions(inner, command or name)
