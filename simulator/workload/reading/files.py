"""Read input files whole, plain or gzip-compressed, and refuse what is not text."""
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from simulator.core.paths import readable
from simulator.errors import InputErrors

GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file, decompressed where they are gzip.

    Raises
    ------
    InputErrors
        The path leads to no file, the file cannot be read or is not valid gzip.
    """
    try:
        data = Path(readable(path)).read_bytes()
        return gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
    except InputErrors:
        raise
    except FileNotFoundError:
        raise InputErrors([f"{path}: no such file"]) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputErrors([f"{path}: damaged gzip data: {error}"]) from error
    except (OSError, ValueError) as error:      # ValueError: a path with a NUL character
        raise InputErrors([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"]) from error


def files_in(directory: str | Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield path and decompressed content of the files in a directory, by name.

    Their names end in one of `suffixes`, or in that and .gz. They are read one by one.

    Raises
    ------
    InputErrors
        There is none, or one cannot be read.
    """
    wanted = suffixes + tuple(f"{suffix}.gz" for suffix in suffixes)
    names = sorted(name for name in os.listdir(directory) if name.endswith(wanted))
    if not names:
        raise InputErrors([f"{directory}: no file in it is called *{' or *'.join(wanted)}"])
    for name in names:
        path = os.path.join(directory, name)
        yield path, read_bytes(path)


def check_text(path: str | Path, data: bytes) -> None:
    """Raise InputErrors unless `data` is UTF-8 without NUL characters and not empty."""
    if not data or data.isspace():
        raise InputErrors([f"{path}: the file is empty"])
    at = data.find(b"\0")
    if at < 0 and not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            at = error.start
    if at >= 0:
        line = data.count(b"\n", 0, at) + 1
        raise InputErrors([f"{path}:{line}: not UTF-8 text (byte 0x{data[at]:02x})"])
