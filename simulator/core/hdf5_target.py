"""Files below HDF5 that may fail to be written: a full disk ends in an error, not in a crash."""
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_hdf5(path: Path, **options) -> Iterator:
    """Yield an empty h5py.File in memory that becomes a file when the block ends well.

    A failed write raises OSError.

    Parameters
    ----------
    options : of h5py.File.
    """
    import h5py  # few importers of this module write files

    content = io.BytesIO()
    with h5py.File(content, "w", **options) as file:
        yield file
    path.write_bytes(content.getbuffer())


class Target:
    """The file below HDF5, which takes no failed write.

    HDF5 itself cannot close a file after one, and crashes at exit. Here a failed write is raised; while HDF5 closes,
    failures are kept until `close`.

    Parameters
    ----------
    path : the file, replaced if it exists.
    """

    def __init__(self, path: Path):
        self._file = open(path, "w+b", buffering=0)     # noqa: SIM115 -- until close()
        self.seek, self.tell = self._file.seek, self._file.tell
        self.read, self.readinto = self._file.read, self._file.readinto
        self._is_ending = self._is_in_vain = False
        self._error = None

    def write(self, data) -> int:
        """Write all of `data`, which the system may take in parts."""
        data, done = memoryview(data), 0
        while done < len(data) and not self._is_in_vain:
            try:
                done += self._file.write(data[done:])
            except OSError as error:
                self._fail(error)
        return len(data)

    def truncate(self, size: int) -> int:
        """Set the size of the file."""
        if not self._is_in_vain:
            try:
                self._file.truncate(size)
            except OSError as error:
                self._fail(error)
        return size

    def flush(self) -> None:
        """Do nothing: `write` hands its data to the system at once."""

    def end(self, is_in_vain: bool) -> None:
        """Keep failures for `close`; `is_in_vain`: do not even write from now on."""
        self._is_ending, self._is_in_vain = True, is_in_vain

    def close(self) -> None:
        """Close the file; raise the first kept failure."""
        self._file.close()
        if self._error is not None:
            raise self._error

    def _fail(self, error: OSError) -> None:
        if not self._is_ending:
            raise error
        self._error, self._is_in_vain = error, True
