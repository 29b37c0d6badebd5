"""The recorded runs that lie beside the tests: enough of each family, small, unpacked once by several processes."""
import subprocess
import sys
import tarfile
from collections import Counter

from support.recordings import PACKED, ROOT, unpacked

FOLDERS = {"blis", "simai", "vidur", "vidurali"}        # families with a folder for each case
LINES = {"cluster_2026", "engine_args"}                 # families with a line for each case
MOST_BYTES = 2_000_000


def test_ten_cases_of_each_family_are_packed():
    cases, folders = Counter(), {family: set() for family in FOLDERS}
    with tarfile.open(PACKED) as archive:
        for entry in archive:
            family, _, rest = entry.name.partition("/")
            if family in LINES:
                cases[family] += archive.extractfile(entry).read().count(b"\n") if entry.name.endswith(".jsonl") else 0
            elif family in FOLDERS:
                folders[family].add(rest.partition("/")[0])
            else:
                cases[family] += rest.endswith(".json") and not rest.endswith(".log.json")

    cases.update({family: len(names) for family, names in folders.items()})

    assert len(cases) == 12
    assert min(cases.values()) >= 10, cases
    assert PACKED.stat().st_size <= MOST_BYTES


def test_processes_that_unpack_at_once_read_the_same_files(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); from support.recordings import unpacked; " \
           f"from pathlib import Path; print(unpacked(Path({str(tmp_path)!r})))"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {process.communicate(timeout=60)[0].strip() for process in processes}

    assert folders == {str(unpacked(tmp_path))}
    assert [path.name for path in tmp_path.iterdir()] == [unpacked(tmp_path).name]
