"""Read input files whole, plain or gzip-compressed, and refuse what is not text."""
import gzip
import zlib
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
