"""The few forms of YAML that BLIS's policy files and headers of traces are written in.

Block mappings by indentation, lists of `- item`, flow mappings and lists on one line, comments. Values stay text.
"""


def read_yaml(text):
    """Return the mapping that a file holds; every scalar is a str."""
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in map(_without_comment, text.splitlines())]
    lines = [each for each in lines if each[1] and each[1] != "---"]
    return _block(lines, 0)[0] if lines else {}


def _without_comment(line):
    return line if "#" not in line else line[:line.index("#")]


def _block(lines, first):
    """Return what stands at the indentation of line `first`, and the line behind it."""
    indent, i = lines[first][0], first
    found = [] if lines[first][1].startswith("-") else {}
    while i < len(lines) and lines[i][0] == indent:
        text = lines[i][1]
        if isinstance(found, list) and not text.startswith("-"):
            break
        if isinstance(found, list):
            lines[i] = (indent + 2, text[1:].strip())
            if lines[i][1].startswith("{") or ":" not in lines[i][1]:
                found.append(_flow(lines[i][1]))
                i += 1
            else:
                value, i = _block(lines, i)
                found.append(value)
            continue
        key, _, rest = (part.strip() for part in text.partition(":"))
        i += 1
        if rest:
            found[key] = _flow(rest)
        elif i < len(lines) and (lines[i][0], lines[i][1].startswith("-")) > (indent, False):
            found[key], i = _block(lines, i)
        else:
            found[key] = ""
    return found, i


def _flow(text):
    """Return a value written on one line."""
    text = text.strip()
    if text.startswith("{"):
        pairs = (part.partition(":") for part in _parts(text[1:-1]))
        return {key.strip(): _flow(value) for key, _, value in pairs}
    if text.startswith("["):
        return [_flow(part) for part in _parts(text[1:-1])]
    return text.strip("\"'")


def _parts(text):
    """Yield what commas separate, outside of brackets."""
    depth, begin = 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "{[") - (letter in "}]")
        if letter == "," and depth == 0:
            yield text[begin:i]
            begin = i + 1
    if text[begin:].strip():
        yield text[begin:]
