"""Paths given by users: checks that they can be read, or can hold results."""
import os
import shlex
import stat
from collections.abc import Callable
from contextlib import suppress

from simulator.errors import InputErrors

FIRST_PRINTED, DELETE = 0x20, "\x7f"

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


def special(path: str | os.PathLike) -> str | None:
    """Return the kind of a path that is neither file nor folder; None: other paths."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):       # reported by the code that opens it
        return None
    return next((name for is_kind, name in _KINDS if is_kind(mode)), None)


def remove(path: str | os.PathLike) -> None:
    """Remove the rest of a file that could not be written, if that can be done."""
    with suppress(OSError):
        os.unlink(path)


def shell_word(path: str | os.PathLike) -> str:
    """Return a path as one word of a shell's command line, never an option."""
    name = os.fspath(path)
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def fault_of_name(path: str | os.PathLike) -> str | None:
    """Say why a file or folder cannot be called so; None: it can.

    Messages, logs and tables of results have a line for each thing that they name.
    """
    name = os.fspath(path)
    if any(ord(each) < FIRST_PRINTED or each == DELETE for each in name):
        return f"{name!a}: a line break or another control character in a name"
    return None


def readable(path: str | os.PathLike) -> str:
    """Return the path of an input, `~` expanded.

    Raises
    ------
    InputErrors
        It is a FIFO, a device or a socket: input is read again by `compare`, hashed, and named in results; so a name
        has no control characters.
    """
    name = os.path.expanduser(os.fspath(path))
    if fault := fault_of_name(name):
        raise InputErrors([fault])
    if kind := special(name):
        raise InputErrors([f"{name}: {kind}, expected a file"])
    return name


def place_of(directory: str | os.PathLike) -> str:
    """Return the path of a folder for results, `~` expanded.

    Raises
    ------
    InputErrors
        No folder can have such a name.
    """
    name = os.path.expanduser(os.fspath(directory))
    shown = name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if "\0" not in name and (fault := fault_of_name(name)):
        raise InputErrors([fault])
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputErrors([f"{shown}: not UTF-8; the name stands in the results"]) from None
    try:
        os.lstat(name)
    except UnicodeEncodeError:
        raise InputErrors([f"{shown}: the locale has no such letters: LC_ALL=C.UTF-8 has"]) from None
    except (FileNotFoundError, NotADirectoryError):     # NotADirectoryError is reported when it is made
        pass
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or "a name cannot hold NUL"
        raise InputErrors([f"{shown[:200]}: cannot be a folder of results: {what}"]) from None
    return name
