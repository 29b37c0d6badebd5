"""Pack a small part of the recorded runs, for checkouts without them: `python tools/pack_goldens.py [GOLDENS]`.

GOLDENS defaults to ../shared/goldens. Writes tests/goldens/recorded.tar.xz, which tests/support/recordings.py unpacks
where no other recordings are found. Each folder of recordings gives CASES of its cases, spread over their names;
cases over LARGEST_BYTES are passed over unless too few are left. A case is a folder in the families FOLDERS, else the
files of one stem; of JSON Lines, which hold a case a line, LINES are taken. BESIDE are files that belong to no case
or to several.
"""
import gzip
import io
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKED = ROOT / "tests" / "goldens" / "recorded.tar.xz"
MOST_BYTES = 2_000_000
LARGEST_BYTES = 60_000          # of a case, unpacked
CASES = 10                      # of a family; of a folder below one, FEW
FEW = 4
LINES = 12                      # of each file of JSON Lines
FOLDERS = {"blis", "simai", "vidur", "vidurali"}        # families of a folder a case
UNREAD = {"plots", "chrome_trace.json.gz", "chrome_trace.json"}     # no test reads them
BESIDE = ("simai/ratio/*", "simai/topo/*", "vidurali/aicb_csv_synth/*", "vidur/_tables/a100_7b_tp1.npz",
          "vidur/_profiles/attention_a100_llama2-7b_SURROGATE.csv.gz", "vidur/capacity_search/*")
VIDUR_TABLE = "a100_7b_tp1"     # a table of times has a megabyte: Vidur's cases with others are left out


def main(goldens: Path) -> None:
    taken = {path for family in sorted(goldens.iterdir()) if family.is_dir() for path in files_of(family)}
    taken = sorted(taken.union(*(goldens.glob(beside) for beside in BESIDE)))
    PACKED.parent.mkdir(exist_ok=True)
    with tarfile.open(PACKED, "w:xz", preset=9, format=tarfile.USTAR_FORMAT) as archive:
        for path in taken:
            add(archive, str(path.relative_to(goldens)), content_of(path))
    print(f"{len(taken)} files, {PACKED.stat().st_size:,} bytes: {PACKED.relative_to(ROOT)}")
    if PACKED.stat().st_size > MOST_BYTES:
        raise SystemExit(f"over {MOST_BYTES:,} bytes")


def files_of(family: Path) -> list[Path]:
    """Return the files of a family that are packed."""
    found = [path for path in family.iterdir() if path.is_file() and path.suffix in {".md", ".jsonl"}]
    if family.name in FOLDERS:
        cases = [[path for path in sorted(folder.rglob("*")) if path.is_file() and not UNREAD & {*path.parts}]
                 for folder in sorted(family.iterdir()) if folder.is_dir() and is_taken(folder)]
        return found + [path for case in spread(cases, CASES) for path in case]
    folders = sorted({path.parent for path in family.rglob("*") if path.is_file()})
    for folder in folders:
        stems = {}
        for path in sorted(folder.iterdir()):
            if path.is_file() and path not in found:
                stems.setdefault(path.name.partition(".")[0], []).append(path)
        found += [path for case in spread([*stems.values()], CASES if folder == family else FEW) for path in case]
    return found


def is_taken(folder: Path) -> bool:
    """Return whether a folder is a case, and its table of times, if it has one, is packed."""
    key = folder / "tables_key.txt"
    return folder.name[0] != "_" and (not key.exists() or key.read_text().strip() == VIDUR_TABLE)


def spread(cases: list[list[Path]], count: int) -> list[list[Path]]:
    """Return `count` cases at even distances: small cases only, if these suffice."""
    small = [case for case in cases if size_of(case) <= LARGEST_BYTES]
    small = small if len(small) >= count else sorted(cases, key=size_of)[:count]
    return [small[number * len(small) // count] for number in range(min(count, len(small)))]


def size_of(case: list[Path]) -> int:
    return sum(len(content_of(path)) for path in case)


def content_of(path: Path) -> bytes:
    """Return a file's content, unpacked, which packs better beside its like; of JSON Lines some lines."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.name.endswith(".jsonl") and path.parent.name in {"cluster_2026", "engine_args"}:
        lines = content.splitlines(keepends=True)
        content = b"".join(lines[number * len(lines) // LINES] for number in range(min(LINES, len(lines))))
    return content


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file that depends on its content alone."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "goldens")
