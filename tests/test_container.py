"""Containerfile: its paths, versions and extras are those of the checkout. No test here builds the image."""
import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest
import tomli

from simulator import cli

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomli.loads((ROOT / "pyproject.toml").read_text())
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "WORKDIR"}
OWN_NEEDS = {"all", "completion", "docs", "forecast", "gpu", "operators", "test"}   # an image is better off without


def instructions():
    """Return (instruction, what follows) of all lines, continued ones joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line]


def stages():
    """Return the instructions of each image, its FROM first."""
    found = []
    for each in instructions():
        if each[0] == "FROM":
            found.append([])
        if found:
            found[-1].append(each)
    return found


def argument(name):
    return next(value.partition("=")[2] for word, value in instructions() if word == "ARG" and value.startswith(name))


def copied():
    """Return the sources that COPY takes out of the checkout."""
    lines = [value.split() for word, value in instructions() if word == "COPY" and "--from" not in value]
    return [source for *sources, _ in lines for source in sources]


def test_every_instruction_is_one_that_docker_and_podman_know():
    assert {word for word, *_ in instructions()} == INSTRUCTIONS
    assert all(len(each) == 2 for each in instructions())


def test_what_is_copied_exists_and_is_not_ignored():
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]

    assert not [source for source in copied() if not (ROOT / source).exists()]
    assert not [source for source in copied() for pattern in ignored if fnmatch(source.strip("/"), pattern)]


def test_folders_are_copied_to_their_own_names():
    folders = [value.split() for word, value in instructions() if word == "COPY" and value.split()[0].endswith("/")]
    assert folders and all(source == target for source, target in folders)


def test_what_the_wheel_is_made_of_is_copied():
    project = PYPROJECT["project"]
    facts = re.search(r"^FACTS = (\(.*?\))", (ROOT / "setup.py").read_text(), re.MULTILINE)[1]
    needed = {"pyproject.toml", "setup.py", "simulator", "tools/translate.py", project["readme"],
              *project["license-files"], *json.loads(facts.replace("(", "[").replace(")", "]"))}

    assert needed == {source.strip("/") for source in copied()}


def test_python_is_one_that_wheels_are_built_for():
    tag = f"cp{argument('PYTHON').replace('.', '')}-*"
    assert tag in PYPROJECT["tool"]["cibuildwheel"]["build"]
    assert all("python:${PYTHON}-slim" in stage[0][1] for stage in stages())


def test_wheels_begin_with_the_oldest_python_that_is_allowed():
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert PYPROJECT["tool"]["cibuildwheel"]["build"][0] == f"cp{oldest}-*"


def test_every_extra_is_installed_that_needs_nothing_else():
    assert argument("EXTRAS").split(",") == sorted(set(PYPROJECT["project"]["optional-dependencies"]) - OWN_NEEDS)


def test_the_image_that_runs_has_no_compiler_and_is_not_roots():
    first, last = stages()
    words = [word for word, _ in last]

    assert [value for word, value in first if word == "RUN" and "gcc" in value]
    assert not [value for word, value in last if word == "RUN" and re.search(r"gcc|apt-get|pip", value)]
    assert dict(last)["USER"] == "simulator" and words.index("USER") < words.index("ENTRYPOINT")
    assert dict(last)["COPY"].startswith(f"--from={first[0][1].split(' AS ')[1]} ")


def test_it_runs_the_command_line():
    last = dict(stages()[-1])
    assert json.loads(last["ENTRYPOINT"]) == ["python", "-m", "simulator"]
    with pytest.raises(SystemExit) as caught:
        cli.main(json.loads(last["CMD"]))
    assert caught.value.code == 0


def test_commands_of_the_page_mount_where_the_image_works():
    place = dict(stages()[-1])["WORKDIR"]
    runs = re.findall(r"^(?:docker|podman) run (.*?) simulator (.*)$", (ROOT / "docs/install.md").read_text(),
                      re.MULTILINE)

    assert len(runs) == 3
    for options, words in runs:
        assert re.search(rf'--volume "\$PWD:{place}(:Z)?"', options) and "--user" in options
        first, *others = shlex.split(words)
        command = [first, *others] if first in cli.COMMANDS else ["run", first, *others]
        assert cli.parser_of(command[0]).parse_args(command)
