"""Kinds of layer parts answer for themselves: no code outside their room tests the class or the fields of a part."""
import ast
import re
from functools import cache

from style.sources import ROOT, files, name

ROOM = ROOT / "simulator/domain/layers"
TEST = re.compile(r"\b(isinstance|issubclass|getattr|hasattr)\(|\bcase (?=\w+\()")


@cache
def parts():
    """Return the names of the classes of parts, and the names of their fields."""
    classes, fields = {"Part"}, set()
    for path in files(".py", under="simulator/domain/layers"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} - {"NamedTuple"}:
                classes.add(node.name)
                fields |= {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
    return classes, fields - {"title"}


def places_of(text):
    """Return the places of tests of a part's class or fields."""
    (classes, fields), places = parts(), []
    for match in TEST.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        call = text[match.end():end]
        if match[1] in ("getattr", "hasattr"):
            found = fields & set(re.findall(r'"(\w+)"', call))
        else:
            found = classes & set(re.findall(r"\w+", call if match[1] else call.partition("(")[0]))
        if found:
            places.append(match.start())
    return places


def test_no_code_tests_the_class_of_a_part():
    wrong = [name(path, text[:place].count("\n") + 1) for folder in ("simulator", "tools")
             for path in files(".py", ".pyx", under=folder) if ROOM not in path.parents
             for text in [path.read_text(encoding="utf-8")] for place in places_of(text)]
    assert not wrong, "\n".join(wrong)


def test_places_are_found():
    assert len(places_of("""
        isinstance(deployment.model.mixer("x"), LatentAttention)
        isinstance(part, GatedDeltaNet | Mamba2)
        isinstance(part, (Mlp, Moe))
        case Mlp(intermediate_size=3):
        getattr(model.attention, "indexer", None)
        hasattr(part.shard(2), "intermediate_size")
        getattr(parameters, "indexed", None)
        isinstance(part, str)
    """)) == 6
