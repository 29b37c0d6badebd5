"""Check that an HDF5 file holds its data itself: a foreign one could make us read any file of this machine."""
from pathlib import Path

import h5py

from simulator.errors import InputErrors


def check_own(path: Path, file: h5py.File) -> None:
    """Refuse links to other places and data that lie outside of the file.

    Raises
    ------
    InputErrors
        The first such link or data set.
    """
    pending = [file]
    while pending:
        group = pending.pop()
        for name in group:
            link = group.get(name, getlink=True)
            where = f"{group.name.rstrip('/')}/{name}"
            if not isinstance(link, h5py.HardLink):
                raise InputErrors([f"{path}: {where} is a link, and no run writes any"])
            found = group[name]
            if isinstance(found, h5py.Dataset):
                if found.external or found.is_virtual:
                    raise InputErrors([f"{path}: {where} lies in another file, and no run writes it so"])
            elif group is file:             # runs have groups in the root alone
                pending.append(found)
            else:
                raise InputErrors([f"{path}: {where} is a group, which no run writes there"])
