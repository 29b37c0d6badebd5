"""One idea a file: small files, short functions, few parameters."""
import re

from style.sources import CODE, ROOT, files, name, signature

MAX_FILE_LINES = 700        # a narrow door beats a small file: above 400, ask whether it holds two ideas
MAX_FUNCTION_LINES = 40     # code: the docstring does not count
MAX_PARAMETERS = 7          # `self` does not count

# What may be larger, and why. Keys as the tests report them: "file" or "file:function".
LARGER = {"simulator/api.py:run": "what people call, by keyword",
          "simulator/kv/hybrid/tables.pyx": "one cache, whose lookups and allocations read and write the same tables",
          "simulator/scheduling/base.pyx": "one class, whose parts read and write the same sequences",
          "simulator/scheduling/sglang.pyx": "one policy, whose ways to admit share a budget",
          "simulator/scheduling/vllm.pyx": "one policy, whose two phases share a budget"}

_FUNCTION = re.compile(r"^(?P<indent> *)(?:async )?(?:def|cdef|cpdef)\s(?!class|struct|enum|union|packed|extern)"
                       r"[^=(\n]*?(?P<name>\w+)\((?P<rest>.*)$")


def functions(path):
    """Yield name, first line, lines of code and number of parameters of each function with a body."""
    lines = path.read_text().splitlines()
    for start, line in enumerate(lines):
        match = _FUNCTION.match(line)
        if not match:
            continue
        head = signature(lines, start)
        if head.rstrip().endswith(":"):
            body = _body(lines, start + head.count("\n") + 1, len(match["indent"]))
            yield match["name"], start + 1, len(body) + head.count("\n") + 1, _num_parameters(head)


def _body(lines, first, indent):
    body = []
    for line in lines[first:]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent and not line.startswith(")"):
            break
        body.append(line)
    text = re.sub(r'^\s*r?"""(?:.|\n)*?"""\n?', "", "\n".join(body).rstrip() + "\n", count=1)
    return text.splitlines()


def _num_parameters(head):
    inside = head[head.index("(") + 1:head.rindex(")")]
    while (flat := re.sub(r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}", "", inside)) != inside:
        inside = flat
    names = [part.split("=")[0].split(":")[0].split() for part in inside.split(",")]
    return sum(1 for words in names if words and words[-1] not in {"self", "cls", "*", "/"})


def test_files_are_small():
    large = {name(path): len(path.read_text().splitlines()) for path in files(*CODE)}
    wrong = [f"{file}: {lines} lines" for file, lines in large.items() if lines > MAX_FILE_LINES and file not in LARGER]
    assert not wrong, "\n".join(wrong)


def test_functions_are_short():
    wrong = [f"{name(path, line)}: {function} has {lines} lines"
             for path in files(*CODE) for function, line, lines, _ in functions(path)
             if lines > MAX_FUNCTION_LINES and f"{name(path)}:{function}" not in LARGER]
    assert not wrong, "\n".join(wrong)


def test_functions_take_few_parameters():
    wrong = [f"{name(path, line)}: {function} takes {parameters} parameters"
             for path in files(*CODE, under="simulator") for function, line, _, parameters in functions(path)
             if parameters > MAX_PARAMETERS and f"{name(path)}:{function}" not in LARGER]
    assert not wrong, "\n".join(wrong)


def test_the_exceptions_still_exist():
    known = {name(path) for path in files(*CODE)}
    known |= {f"{name(path)}:{function}" for path in files(*CODE) for function, *_ in functions(path)}
    assert set(LARGER) <= known


def test_the_reader_measures_functions():
    page = ROOT / "tests/style/sources.py"
    measured = {function: (lines, parameters) for function, _, lines, parameters in functions(page)}
    assert measured["name"] == (2, 2)           # head and one line; the docstring does not count
    assert measured["files"] == (2, 2)          # *suffixes and under
    assert measured["_own_files"] == (6, 1)
