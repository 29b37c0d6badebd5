"""Input files, whole or in pieces, plain or gzip-compressed; other data than text is refused."""
import codecs
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.core.paths import readable
from simulator.core.unpacking import limit_of
from simulator.errors import InputErrors

GZIP_MAGIC = b"\x1f\x8b"
OTHER_MAGICS = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
PIECE_BYTES = 2**22
MAX_LINE_BYTES = 2**26          # of a table: 100,000 ids of hashed blocks take 2 MB


def read_bytes(path: str | Path, max_bytes: int = 0) -> bytes:
    """Return the bytes of a file, decompressed if gzip, without a mark of UTF-8.

    max_bytes : most bytes after decompression; 0: by `limit_of`.

    Raises
    ------
    InputErrors
        The path leads to no file, the file cannot be read, is not valid gzip, or is too large.
    """
    chunks = list(_chunks(path, max_bytes + 1 if max_bytes else 0, max_bytes))
    return (chunks[0] if len(chunks) == 1 else b"".join(chunks)).removeprefix(codecs.BOM_UTF8)


def _chunks(path: str | Path, size: int, max_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks, decompressed if they are gzip.

    size : of a chunk; 0: a plain file in one chunk.
    """
    with _faults_of(path), open(readable(path), "rb") as raw:
        magic, num_bytes = raw.read(6), os.fstat(raw.fileno()).st_size
        for each, name in OTHER_MAGICS.items():
            if magic.startswith(each):
                raise InputErrors([f"{path}: {name} data; expected plain text, or gzip: decompress it first"])
        is_gzip = magic.startswith(GZIP_MAGIC)
        raw.seek(0)
        limit, total = max_bytes or (limit_of(num_bytes) if is_gzip else 0), 0
        file = gzip.GzipFile(fileobj=raw) if is_gzip else raw
        while chunk := file.read(size or (PIECE_BYTES if is_gzip else -1)):
            if is_gzip and (at := chunk.find(b"\0")) >= 0:
                raise InputErrors([f"{path}: not UTF-8 text (byte 0x00 after {total + at:,} bytes)"])
            total += len(chunk)
            if limit and total > limit:
                why = "" if max_bytes else f", {limit / num_bytes:,.0f} times what it takes here"
                raise InputErrors([f"{path}: more than {limit:,} bytes of text{why}; max_bytes says how many it may "
                                   "have"])
            yield chunk


def read_pieces(path: str | Path, size: int = PIECE_BYTES, max_bytes: int = 0) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of whole rows.

    Pieces have about `size` bytes, decompressed if they are gzip. A row of CSV ends with a line feed outside quotes: a
    line feed after an even number of quotes, if quotes only enclose cells. If the last line feed of a chunk is not one,
    the next chunk is added.

    Raises
    ------
    InputErrors
        As `read_bytes`.
    """
    rest, num_lines = b"", 1
    for chunk in _chunks(path, size, max_bytes):
        rest += chunk
        cut = rest.rfind(b"\n") + 1
        if cut and rest.count(b'"', 0, cut) % 2 == 0:
            yield rest[:cut]
            num_lines += rest.count(b"\n", 0, cut)
            rest = rest[cut:]
        if len(rest) > MAX_LINE_BYTES:
            raise InputErrors([f"{path}:{num_lines}: a line of more than {MAX_LINE_BYTES:,} bytes, which no table has"])
    if rest:
        yield rest


@contextmanager
def _faults_of(path: str | Path) -> Iterator[None]:
    """Turn an error on a file into a fault of the input."""
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


def files_in(directory: str | Path, suffixes: tuple[str, ...], max_bytes: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield path and decompressed content of the files in a directory, by name.

    Their names end in one of `suffixes`, or in one and .gz. They are read one by one, each with at most `max_bytes`.

    Raises
    ------
    InputErrors
        There is no such file, or one cannot be read.
    """
    endings = suffixes + tuple(f"{suffix}.gz" for suffix in suffixes)
    names = sorted(name for name in os.listdir(directory) if name.endswith(endings))
    if not names:
        raise InputErrors([f"{directory}: no file in it is called *{' or *'.join(endings)}"])
    for name in names:
        path = os.path.join(directory, name)
        yield path, read_bytes(path, max_bytes)


def check_text(path: str | Path, data: bytes, lines_before: int = 0) -> None:
    """Raise InputErrors unless `data` is UTF-8 without NUL characters and not empty.

    lines_before : number of lines before `data` in the file; behind them, a piece may be empty.
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
