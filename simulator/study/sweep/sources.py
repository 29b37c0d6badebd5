"""A hash of the program's sources: two machines with equal hashes give equal results."""
import hashlib
import os
from functools import cache

import simulator

ENDINGS = (".py", ".pyx", ".pxd")


@cache
def hash_of_sources() -> str:
    """Return the SHA-256 of the package's sources: names and contents.

    Built modules do not count.
    """
    root, found = os.path.dirname(simulator.__file__), hashlib.sha256()
    names = [os.path.relpath(folder, root).replace(os.sep, "/") + "/" + name
             for folder, _, files in os.walk(root) for name in files if name.endswith(ENDINGS)]
    for name in sorted(names):
        with open(os.path.join(root, name), "rb") as source:
            found.update(f"{name}\0".encode())
            found.update(hashlib.sha256(source.read()).digest())
    return found.hexdigest()
