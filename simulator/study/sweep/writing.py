"""Text files, written whole or not at all."""
import os
from pathlib import Path

from simulator.core.paths import remove
from simulator.errors import OutputError


def write(path: Path, text: str) -> None:
    """Write a file whole, or not at all; a file with equal content is left as it is.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    staged = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_text(text, encoding="utf-8", newline="\n")
        os.replace(staged, path)
    except OSError as error:
        remove(staged)
        raise OutputError(path, error) from error
