"""Which folder holds the recorded runs: $SIM_GOLDENS, else ../shared/goldens, else the few of tests/goldens.

tests/goldens/recorded.tar.xz (made by tools/pack_goldens.py) is unpacked below build/ when a test first asks.
"""
import gzip
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from zlib import crc32

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ROOT.parent / "shared" / "goldens"
PACKED = ROOT / "tests" / "goldens" / "recorded.tar.xz"


def recordings() -> Path:
    """Return the folder of recorded runs, a folder for each family."""
    if given := os.environ.get("SIM_GOLDENS"):
        return Path(given)
    return BESIDE if BESIDE.is_dir() else unpacked(ROOT / "build")


def unpacked(into: Path) -> Path:
    """Return the folder with the packed recordings, which several processes may ask for at once."""
    folder = into / f"goldens-{crc32(PACKED.read_bytes()):08x}"
    if not folder.is_dir():
        into.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="goldens-", dir=into))
        with tarfile.open(PACKED) as archive:
            for entry in archive:
                path = fresh / entry.name
                path.parent.mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(entry).read()
                path.write_bytes(gzip.compress(content, 1, mtime=0) if path.suffix == ".gz" else content)
        try:
            fresh.rename(folder)
        except OSError:             # another process was first
            shutil.rmtree(fresh)
    return folder
