"""What the program is made of, in one number: two machines with the same one give the same results."""
import hashlib
from functools import cache
from pathlib import Path

import simulator

ENDINGS = {".py", ".pyx", ".pxd"}


@cache
def hash_of_sources() -> str:
    """Return the SHA-256 of the package's sources: names and contents.

    Built modules do not count.
    """
    root = Path(simulator.__file__).parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in ENDINGS:
            found.update(f"{path.relative_to(root).as_posix()}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
