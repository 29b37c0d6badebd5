"""Recorded runs of SimAI's programs: a folder each, with command.txt, EndToEnd.csv and what the command names."""
import shlex
from itertools import pairwise

from support.goldens import GOLDENS

FOLDER = GOLDENS / "simai"
PROGRAMS = {"analytical": ("SimAI_analytical", "ana_auto", "ana_yaml"), "simulation": ("SimAI_simulator",)}
COMMON = {"-w", "-g", "-n", "-c", "-t"}


def cases(program):
    """Return the folders, at any depth, that hold a run of one of the `PROGRAMS`."""
    found = (path.parent for path in FOLDER.rglob("command.txt") if (path.parent / "EndToEnd.csv").exists())
    return sorted(case for case in found if any(name in command(case) for name in PROGRAMS[program]))


def case_name(case):
    return str(case.relative_to(FOLDER))


def command(case):
    """Return the command: the first line, without a remark in brackets about the build."""
    return (case / "command.txt").read_text().splitlines()[0]


def options(case):
    """Return the options of a command that have a value: "-g" -> "64"."""
    words = shlex.split(command(case).split("] ")[-1])
    return {word: value for word, value in pairwise(words) if word.startswith("-")}


def environment(case):
    """Return the variables set before the program's name: "AS_SEND_LAT" -> "6"."""
    words = command(case).split()
    return dict(word.split("=", 1) for word in words if "=" in word and word.startswith("AS_"))


def left_out(case, known):
    """Return why a case cannot be compared, or None; `known`: options that its test understands."""
    status = [line for line in (case / "command.txt").read_text().splitlines() if line.startswith("rc=")]
    if status and not status[0].startswith("rc=0"):
        return f"the program failed: {status[0]}"
    if unknown := options(case).keys() - known - COMMON:
        return f"not translated: {', '.join(sorted(unknown))}"
    if not workload_path(case).exists():
        return f"no {workload_path(case).name}"
    return None


def workload_path(case):
    return case / options(case)["-w"].rpartition("/")[2]
