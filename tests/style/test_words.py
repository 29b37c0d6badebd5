"""Prose that a stranger understands at first reading: turns that must be solved are counted, and never more again."""
import io
import keyword
import re
import tokenize
from collections import Counter

from style.sources import ROOT, files

TURNS = re.compile(
    r"\b(?:who(?:se|m|ever)?|nobody|somebody|everybody|anybody|likewise|told|tells?|of (?:these|those|them))\b"
    r"|\b(?:stands?|stood)\b(?! still)"
    r"|\bwhat(?:ever)? (?:is|was|comes|came|has|have|they|it|stands|runs|an?|the|of|others|nobody|somebody"
    r"|bec[ao]mes?)\b", re.IGNORECASE)
FIELD = re.compile(r'(?:description|help|meaning|text)\s*=\s*[rf]?"')
# Place -> lines with a turn; word that the glossary replaces -> identifiers that hold it.
MOST = {
    "CONTRIBUTING.md": 1, "bench/test_sweep.py": 1, "docs/accuracy.md": 3, "docs/glossary.md": 1, "docs/guide": 7,
    "simulator/assembly": 2, "simulator/config": 1, "simulator/domain": 3, "simulator/engine": 2,
    "simulator/study": 16, "simulator/testing": 4}
MOST_OF_ALL = 500
MOST_WORDS = {"stride": 9}      # between ranks, ports and places in memory: the field's word
PLACES = ("simulator", "docs", "README.md", "CONTRIBUTING.md", "bench", "tools", "configs")


def prose(path):
    """Yield the lines of comments, docstrings, texts of schema fields, and Markdown outside of code."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".toml":
        yield from (line[line.index("#"):] for line in lines if "#" in line)
        return
    end = None          # that closes the block in hand
    for line in lines:
        words = line.strip()
        if path.suffix == ".md":
            if words.startswith("```"):
                end = None if end else "```"
            elif end is None:
                yield line
        elif end is not None:
            yield words
            end = None if end in words else end
        elif opened := re.match(r"[rRbBuUfF]*(\"\"\"|''')", words):
            yield words
            end = opened[1] if words.count(opened[1]) == 1 else None
        elif comment := re.search(r"(?:^|\s)#\s?(.*)$", line):
            yield comment[1]
        elif FIELD.search(line):
            yield line


def turns():
    """Return how many lines hold a turn, by the first two folders of their files."""
    counts = Counter()
    for place in PLACES:
        paths = [ROOT / place] if place.endswith(".md") else files(".py", ".pyx", ".pxd", ".md", ".toml", under=place)
        for path in paths:
            if "docs/reference" not in path.as_posix():
                room = "/".join(path.relative_to(ROOT).parts[:2])
                counts[room] += sum(bool(TURNS.search(line)) for line in prose(path))
    return counts


def replaced():
    """Return the words of the glossary that other terms replace."""
    table = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").partition("## Words that are replaced")[2]
    return re.findall(r"^\| (\w+) \|", table, re.MULTILINE)[1:]


def identifiers(path):
    """Return the distinct identifiers of a file, without keywords."""
    names = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                names.add(token.string)
    except (tokenize.TokenError, SyntaxError):      # C declarations in Cython
        names |= set(re.findall(r"\b[A-Za-z_]\w*", path.read_text(encoding="utf-8")))
    return names


def words_of_identifiers():
    """Return in how many identifiers of files each replaced word is."""
    counts, old = Counter(), set(replaced())
    for path in files(".py", ".pyx", ".pxd", under="simulator"):
        for name in identifiers(path):
            counts.update(old & set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")))
    return counts


def test_no_room_has_more_turns_than_it_had():
    found = turns()

    assert {room: count for room, count in found.items() if count > MOST.get(room, 0)} == {}
    assert sum(found.values()) <= MOST_OF_ALL


def test_identifiers_use_the_words_of_the_glossary():
    assert len(replaced()) > 10
    assert {word: count for word, count in words_of_identifiers().items() if count > MOST_WORDS.get(word, 0)} == {}


def test_the_glossary_has_one_line_a_term():
    lines = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines()
    terms = [line.split("|")[1].strip() for line in lines if line.startswith("| ") and "---" not in line]

    assert len(terms) > 70
    assert [term for term, count in Counter(terms).items() if count > 1 and term not in ("term", "word")] == []


def test_the_counter_sees_turns_in_prose_alone(tmp_path):
    page = tmp_path / "a.py"
    page.write_text('"""A class who waits.\n\nIt tells nobody.\n"""\nwho = 1     # of these\nx = "who"\n')

    assert sum(bool(TURNS.search(line)) for line in prose(page)) == 3
