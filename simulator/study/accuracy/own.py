"""Data sets of a user's own, which a board keeps: folders that `import` wrote, copied below the board's folder."""
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from simulator.errors import InputErrors
from simulator.study.accuracy.data_set import FILE, open_all

FOLDER = "own"


def kept_in(board: str | os.PathLike) -> list[str]:
    """Return the folders of the data sets that a board keeps, in order of their names."""
    return sorted(str(file.parent) for file in Path(board, FOLDER).glob(f"*/{FILE}"))


def checked(folders: Iterable[str]) -> dict[str, Path]:
    """Return name -> folder of data sets that are to be added.

    Raises
    ------
    InputErrors
        A folder is no data set, lacks a file, has files elsewhere, or does not describe its server.
    """
    faults: list[str] = []
    found: dict[str, Path] = {}
    for folder in folders:
        try:
            sets = open_all([folder], folder)
        except InputErrors as errors:
            faults += errors.faults
            continue
        for opened in sets:
            source = Path(opened.place).parent
            faults += [f"{opened.place}: files: {path}: not found" for path in opened.absent]
            faults += [f"{opened.place}: files: {file.path}: lies elsewhere; paths of a data set to be added begin "
                       "with ./" for file in opened.says.files
                       if not Path(file.path).is_relative_to(source.absolute())]
            faults += [f"{opened.place}: experiment.{key}: missing; it describes the server that was measured"
                       for key in ("model", "hardware") if key not in opened.says.experiment]
            if opened.says.name in found:
                faults.append(f"{opened.place}: name: {opened.says.name!r} is the name of another added one, too")
            found[opened.says.name] = source
    if faults:
        raise InputErrors(faults)
    return found


def copy(found: Mapping[str, Path], board: str | os.PathLike) -> None:
    """Copy data sets into a board; one of the same name there is replaced."""
    for name, source in found.items():
        target = Path(board, FOLDER, name)
        if source.resolve() == target.resolve():
            continue
        staged = target.with_name(f".{name}.partial")
        shutil.rmtree(staged, ignore_errors=True)
        shutil.copytree(source, staged)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(staged, target)
