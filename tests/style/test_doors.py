"""A narrow door: nobody reads or writes a `_member` of another class outside the module that declares it."""
import re
from functools import cache

from style.sources import CODE, files, name

# What may be touched from elsewhere, and why. Keys: "file:_member".
LISTED = {"simulator/profiling/torch_kernels.py:_scaled_mm": "PyTorch's own name of its products of fp8"}
NOT_PRIVATE = {"_replace", "_asdict", "_fields", "_make"}      # of named tuples

_FOREIGN = re.compile(r"(?P<before>[\w\])]+)\.(?P<member>_[a-z]\w*)")


def declared(path):
    """Return the private names that a module declares, its .pyx and .pxd taken together."""
    text = "\n".join(each.read_text() for each in map(path.with_suffix, (".py", ".pyx", ".pxd")) if each.exists())
    compiled = {found for line in text.splitlines() if re.match(r"\s*(?:c?p?def|ctypedef)\b", line)
                for found in re.findall(r"\b_[a-z]\w*", line.partition("=")[0])}
    return compiled | {found for line in re.findall(r"^\s*self\._[^=]*=[^=]", text, re.MULTILINE)
                       for found in re.findall(r"self\.(_[a-z]\w*)", line)}


def foreign(text, own):
    """Yield line and member wherever a private member of something else than `self` is touched."""
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"(['\"]).*?\1", "", line.split("#")[0])
        for match in _FOREIGN.finditer(code):
            is_own = match["before"] in {"self", "cls"} and not code[:match.start()].endswith(".")
            if not is_own and match["member"] not in own | NOT_PRIVATE:
                yield number, match["member"]


@cache
def touched():
    return [(path, number, member) for path in files(*CODE, under="simulator")
            for number, member in foreign(path.read_text(), declared(path))]


def test_nobody_touches_private_members_of_others():
    wrong = [f"{name(path, number)}: {member}" for path, number, member in touched()
             if f"{name(path)}:{member}" not in LISTED]
    assert not wrong, "\n".join(wrong)


def test_the_listed_ones_still_exist():
    assert set(LISTED) <= {f"{name(path)}:{member}" for path, _, member in touched()}


def test_the_reader_tells_foreign_members_from_own():
    text = "self._size += other._size\nself.queue._heap[0]  # queue._room\nmodule._name\n"

    assert list(foreign(text, {"_size"})) == [(2, "_heap"), (3, "_name")]
