"""Read input files, whole or in pieces, plain or gzip-compressed, and refuse what is not text."""
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.core.paths import readable
from simulator.errors import InputErrors

GZIP_MAGIC = b"\x1f\x8b"
PIECE_BYTES = 2**22


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file, decompressed where they are gzip.

    Raises
    ------
    InputErrors
        The path leads to no file, the file cannot be read or is not valid gzip.
    """
    with _faults_of(path):
        data = Path(readable(path)).read_bytes()
        return gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data


def read_pieces(path: str | Path, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of whole rows.

    They have some `size` bytes, decompressed where they are gzip. A row of CSV ends with a line feed that no quotes
    enclose, which is one with an even number of them before it where quotes only stand around cells. A piece without
    any is cut at its last line feed.

    Raises
    ------
    InputErrors
        As `read_bytes`.
    """
    with _faults_of(path), open(readable(path), "rb") as raw:
        is_gzip = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        raw.seek(0)
        file = gzip.GzipFile(fileobj=raw) if is_gzip else raw
        rest = b""
        while chunk := file.read(size):
            rest += chunk
            cut = rest.rfind(b"\n") + 1
            if cut and rest.count(b'"', 0, cut) % 2 == 0:
                yield rest[:cut]
                rest = rest[cut:]
        if rest:
            yield rest


@contextmanager
def _faults_of(path: str | Path) -> Iterator[None]:
    """Turn what goes wrong with a file into a fault of the input."""
    try:
        yield
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


def check_text(path: str | Path, data: bytes, lines_before: int = 0) -> None:
    """Raise InputErrors unless `data` is UTF-8 without NUL characters and not empty.

    lines_before : of the file; after some, a piece may be empty.
    """
    if not lines_before and (not data or data.isspace()):
        raise InputErrors([f"{path}: the file is empty"])
    at = data.find(b"\0")
    if at < 0 and not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            at = error.start
    if at >= 0:
        line = lines_before + data.count(b"\n", 0, at) + 1
        raise InputErrors([f"{path}:{line}: not UTF-8 text (byte 0x{data[at]:02x})"])
