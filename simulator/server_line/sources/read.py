"""Read a source of servers: a command line, or a file that holds some, by its content."""
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from simulator.errors import InputErrors
from simulator.server_line.sources.documents import documents, launches_in
from simulator.server_line.sources.launches import Launch, engine_of_image, launches, version_of_image

NAMES_OF_DOCKERFILES = ("dockerfile", "containerfile")


def launches_from(source: str, environment: Mapping[str, str]) -> list[Launch]:
    """Return the starts of servers in a command line, a file, or standard input ("-").

    Raises
    ------
    InputErrors
        There is none, or one hangs on a value that is not there.
    """
    if source == "-":
        name, text = "standard input", sys.stdin.read()
    elif "\n" not in source and len(source) < 4096 and Path(source).is_file():
        name, text = source, _text_of(Path(source))
    else:
        name, text = "the command line", source
    if _is_dockerfile(name, text):
        found = _of_dockerfile(text, name, environment)
    elif _is_yaml(name, text):
        found = launches_in(text, name, environment)
    else:
        found = launches(text, environment, name)
    if not found:
        raise InputErrors([f"{name}: no start of a server: expected vllm serve, python -m "
                           "vllm.entrypoints.openai.api_server, sglang serve, python -m sglang.launch_server, "
                           "trtllm-serve, or an image of vLLM with arguments"])
    return found


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputErrors([f"{path}: {getattr(error, 'strerror', None) or error}"]) from error


def _is_dockerfile(name: str, text: str) -> bool:
    return Path(name).name.lower().startswith(NAMES_OF_DOCKERFILES) or any(
        line.startswith("FROM ") for line in text.splitlines()[:40])


def _is_yaml(name: str, text: str) -> bool:
    if Path(name).suffix in (".yaml", ".yml", ".json"):
        return True
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return first.strip() == "---" or (first.rstrip().endswith(":") and " " not in first.strip()) or (
        first.partition(":")[0] in ("apiVersion", "kind", "services", "version", "name") and ": " in f"{first} ")


def _of_dockerfile(text: str, name: str, environment: Mapping[str, str]) -> list[Launch]:
    """Return the start of the last ENTRYPOINT and CMD, with ENV and the tag of the last FROM."""
    known, image, parts = dict(environment), "", {"ENTRYPOINT": "", "CMD": ""}
    for line in text.replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "FROM":
            image, parts = rest.split()[0], {"ENTRYPOINT": "", "CMD": ""}
        elif word.upper() in ("ENV", "ARG") and "=" in rest:
            known |= {key: value.strip("\"'") for key, _, value in (part.partition("=") for part in rest.split())}
        elif word.upper() in parts:
            parts[word.upper()] = _quoted(rest)
    whole = f"{parts['ENTRYPOINT']} {parts['CMD']}".strip()
    found = launches(whole, known, name)
    if not found and engine_of_image(image):
        found = launches(f"docker run {image} {whole}", known, name)
    return [launch._replace(version=launch.version or version_of_image(image)) for launch in found]


def _quoted(text: str) -> str:
    """Return the words of an exec form as shell text; another form as it is."""
    try:
        words = json.loads(text)
    except ValueError:
        return text
    return " ".join("'" + str(word).replace("'", "'\"'\"'") + "'" for word in words)


def config_reader(source: str) -> Callable[[str], list[str]]:
    """Return a reader of --config files beside the source: their flags as words."""
    folder = Path(source).parent if source != "-" and "\n" not in source and Path(source).is_file() else Path()

    def read(name: str) -> list[str]:
        path = Path(name) if Path(name).is_absolute() else folder / name
        tables = documents(_text_of(path), str(path))
        if len(tables) != 1 or not isinstance(tables[0], dict):
            raise InputErrors([f"{path}: expected one table of flags"])
        return [word for key, value in tables[0].items() for word in _as_words(str(key), value)]
    return read


def _as_words(key: str, value: object) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if value is True:
        return [flag]
    if value is False:
        return []
    if isinstance(value, list):
        return [flag, *map(str, value)] if value else []
    return [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
