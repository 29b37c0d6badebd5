"""The digest of a file is remembered as long as the file is surely what it was."""
import hashlib
import json
import os
import time
from multiprocessing import get_context

import pytest

from simulator.errors import InputErrors
from simulator.latency.source_digest import digest_of

LONG_AGO_NS = time.time_ns() - 3600 * 10**9
reads = []


def content(path):
    """Return what a file holds, and note that it was read."""
    reads.append(path)
    with open(path, "rb") as file:
        return file.read()


def write(path, text, mtime_ns=LONG_AGO_NS):
    path.write_text(text)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


@pytest.fixture
def digest(tmp_path):
    """Return a function: digest of a file, and how often it was read for it."""
    def ask(path):
        reads.clear()
        return digest_of(path, str(tmp_path / "cache"), content), len(reads)
    return ask


def of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_file_is_read_once(tmp_path, digest):
    path = write(tmp_path / "a", "one")

    assert [digest(path), digest(path)] == [(of("one"), 1), (of("one"), 0)]


def test_a_file_of_another_size_is_read_again(tmp_path, digest):
    path = write(tmp_path / "a", "one")
    digest(path)
    write(path, "three")

    assert digest(path) == (of("three"), 1)


def test_a_file_of_another_time_is_read_again(tmp_path, digest):
    path = write(tmp_path / "a", "one")
    digest(path)
    write(path, "two", LONG_AGO_NS + 1)

    assert digest(path) == (of("two"), 1)


def test_a_file_that_was_given_its_former_size_and_time_is_read_again(tmp_path, digest):
    path = write(tmp_path / "a", "one")
    digest(path)
    write(path, "two")                      # the change of its times is itself a change

    assert digest(path) == (of("two"), 1)


def test_a_file_that_was_just_written_is_not_believed_to_stay(tmp_path, digest):
    path = tmp_path / "a"
    path.write_text("one")

    assert [digest(path), digest(path)] == [(of("one"), 1), (of("one"), 1)]


@pytest.mark.parametrize("harm", [
    lambda text: "", lambda text: text[:40], lambda text: "[]", lambda text: "{}",
    lambda text: json.dumps(json.loads(text) | {"sha256": of("two")})])
def test_a_damaged_note_is_not_believed(tmp_path, digest, harm):
    path = write(tmp_path / "a", "one")
    digest(path)
    note, = (tmp_path / "cache" / "sources").iterdir()
    note.write_text(harm(note.read_text()))

    assert [digest(path), digest(path)] == [(of("one"), 1), (of("one"), 0)]


def test_nothing_is_remembered_where_nothing_can_be_written(tmp_path, digest):
    (tmp_path / "cache").write_text("a file")
    path = write(tmp_path / "a", "one")

    assert [digest(path), digest(path)] == [(of("one"), 1), (of("one"), 1)]


def test_a_file_that_is_not_there_is_named(tmp_path, digest):
    with pytest.raises(InputErrors, match="nowhere: cannot be read: No such file"):
        digest(tmp_path / "nowhere")


def _digest(path, cache):
    return digest_of(path, cache, content)


def test_processes_that_write_at_once_do_not_clash(tmp_path):
    paths = [str(write(tmp_path / str(i % 3), str(i % 3))) for i in range(24)]

    with get_context("spawn").Pool(4) as pool:
        found = pool.starmap(_digest, [(path, str(tmp_path / "cache")) for path in paths])

    assert found == [of(str(i % 3)) for i in range(24)]
    assert sorted(path.suffix for path in (tmp_path / "cache" / "sources").iterdir()) == [".json"] * 3
