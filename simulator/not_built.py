"""A checkout that is not built says so, whichever compiled module is asked for first."""
import os
import sys
from collections.abc import Sequence

_PACKAGE = __name__.partition(".")[0]
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_SHARED = "_cython"             # built of no source of ours: setup.py


class NotBuilt(ImportError):
    """A compiled module is missing, its source is here.

    It was never built; or a new version of the sources, or another Python, has not been built yet.

    Parameters
    ----------
    module : its full name.
    """

    def __init__(self, module: str):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        super().__init__(f"not built: see README.md, its first command; {module} is not compiled for Python {version}",
                         name=module)

    def __reduce__(self):
        return NotBuilt, (self.name,)


class MissingModules:
    """The last finder of `sys.meta_path`: asked for what no other has found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Raise NotBuilt for a module of ours that has a source.

        Of others, find nothing.
        """
        package, _, inside = name.partition(".")
        if package == _PACKAGE:
            source = os.path.join(_FOLDER, *inside.split(".")) + ".pyx"
            if inside == _SHARED or os.path.exists(source):
                raise NotBuilt(name)
