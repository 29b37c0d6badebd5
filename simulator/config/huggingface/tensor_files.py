"""Names, dtypes and shapes of tensors from the headers of safetensors files beside a config.json; no tensor is loaded.

A file opens with the header's length, 8 bytes, then the header, JSON: https://github.com/huggingface/safetensors, which
allows at most 100,000,000 bytes of it. `model.safetensors.index.json` names the file of each tensor, and in
`metadata.total_size` the bytes of all.
"""
import json
import re
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from simulator.config.words import show
from simulator.errors import InputErrors

INDEX = "model.safetensors.index.json"
LONGEST = 100_000_000
LFS_POINTER = b"version "       # a repository cloned without its large files has texts in their place
BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
        "U16": 16, "U8": 8, "BOOL": 8, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}
MOST_BYTES = 2**50


class Tensor(NamedTuple):
    """A tensor's dtype, as safetensors names it, and shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor in its file."""
        return prod(self.shape) * BITS[self.dtype] // 8


class TensorFiles(NamedTuple):
    """The files of a checkpoint.

    tensors : of all files, None where a file is not there. total_bytes : of all tensors, None: not known. source : from
    which files they are.
    """

    tensors: dict[str, Tensor] | None
    total_bytes: int | None
    source: str


def read_tensor_files(folder: Path) -> TensorFiles | None:
    """Return the tensors of the safetensors files in a folder, None without any.

    Raises
    ------
    InputErrors
        Every file that is there and cannot be read.
    """
    faults: list[str] = []
    total, names = _index(folder / INDEX, faults)
    files = [folder / name for name in names] if names else _files(folder)
    there = [file for file in files if file.is_file() and not _is_pointer(file)]
    tensors: dict[str, Tensor] = {}
    for file in there:
        tensors |= _header(file, faults)
    for file in files:
        if not file.is_file() and file.exists():
            faults.append(f"{file}: expected a file")
    if faults:
        raise InputErrors(faults)
    if there and len(there) == len(files):
        plural = "s" * (len(files) > 1)
        return TensorFiles(tensors, sum(each.num_bytes for each in tensors.values()),
                           f"headers of {len(files)} safetensors file{plural}")
    return None if total is None else TensorFiles(None, total, f"{INDEX}, total_size")


def _files(folder: Path) -> list[Path]:
    # consolidated.safetensors of Mistral's repositories holds the model again, adapters are no part of it.
    found = sorted(folder.glob("*.safetensors"))
    return ([file for file in found if file.name.startswith(("model", "pytorch_model"))]
            or [file for file in found if not file.name.startswith("adapter")])


def _is_pointer(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(LFS_POINTER)) == LFS_POINTER
    except OSError:
        return False        # the reading of the header says why


def _index(file: Path, faults: list[str]) -> tuple[int | None, list[str]]:
    """Return (bytes of all tensors, the files) of an index; (None, []) without one."""
    if not file.is_file():
        return None, []
    try:
        if file.stat().st_size > LONGEST:
            faults.append(f"{file}: expected at most {LONGEST:,} bytes")
            return None, []
        table = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        faults.append(f"{file}: not JSON: {error}" if not isinstance(error, OSError) else f"{file}: {error.strerror}")
        return None, []
    metadata, places = (table.get(name) if isinstance(table, dict) else None for name in ("metadata", "weight_map"))
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if type(total) is float and total.is_integer():
        total = int(total)          # some writers have 1.5e10
    if total is not None and (type(total) is not int or not 0 < total < MOST_BYTES):
        faults.append(f"{file}: metadata.total_size: expected an integer >= 1, found {show(total)}")
        total = None
    if not isinstance(places, dict) or not all(_is_name(each) for each in places.values()):
        faults.append(f"{file}: weight_map: expected a table of file names in the same folder, found {show(places)}")
        return total, []
    return total, sorted(set(places.values()))


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[^/\\\0]+\.safetensors", name) is not None


def _header(file: Path, faults: list[str]) -> dict[str, Tensor]:
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if size < 8 or length > min(size - 8, LONGEST):
                faults.append(f"{file}: a header of {length:,} bytes is announced, the file has {size:,}" if size >= 8
                              else f"{file}: expected a safetensors file, found {size} bytes")
                return {}
            table = json.loads(opened.read(length))
    except OSError as error:
        faults.append(f"{file}: {error.strerror or error}")
        return {}
    except (ValueError, RecursionError) as error:
        faults.append(f"{file}: its header is no JSON: {error}")
        return {}
    if not isinstance(table, dict):
        faults.append(f"{file}: its header: expected a JSON object, found {show(table)}")
        return {}
    found = {name: _tensor(row) for name, row in table.items() if name != "__metadata__"}
    if wrong := [name for name, tensor in found.items() if tensor is None]:
        faults.append(f"{file}: {wrong[0]}: expected dtype, shape and data_offsets that agree, found "
                      f"{show(table[wrong[0]])}" + f"; {len(wrong)} tensors are so" * (len(wrong) > 1))
        return {}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _tensor(row: Any) -> Tensor | None:
    if not isinstance(row, dict):
        return None
    dtype, shape, place = row.get("dtype"), row.get("shape"), row.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS or not _are_counts(shape) or not _are_counts(place):
        return None
    tensor = Tensor(dtype, tuple(shape))
    return tensor if len(place) == 2 and place[1] - place[0] == tensor.num_bytes else None


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and len(values) <= 16 and all(
        type(each) is int and 0 <= each < MOST_BYTES for each in values)
