"""Pages that do what they show: their files are written, commands run, Python executed, block by block.

- `console`: a line that begins with `$ ` is a command; the lines up to the next one are its output, which is compared.
  `...` stands for anything: within a line, or, alone in one, for any lines. A block without such lines is left alone.
- `toml` and `python` whose first line is `# NAME`: the file NAME is written.
- `python`: is executed. `pycon`: likewise, and what it prints is compared, `...` as above.
- Others, `bash` for instance: nothing.

Output is what a command prints to stdout, and, where it fails, to stderr; a page then shows `$ echo $?`, too. Where
commands need something of this machine, as the port of a server, the page has a name for it that `stand_ins` replaces.

`PYTHONPATH=tests:. python -m support.pages PAGE...` writes what commands print now into pages, wherever they differ;
`pycon` blocks are for people to correct.
"""
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from simulator import cli

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "python -m simulator "
_HERE = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
_HERE.pop("PYTHONUNBUFFERED", None)     # readers' commands print into pipes as Python does by default
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.(?:toml|py))\n")


class Block(NamedTuple):
    """A fenced block: its language, its text, and where the text begins in the page."""

    language: str
    text: str
    start: int


class Shown(NamedTuple):
    """A command and the output that the page shows."""

    command: str
    output: str
    start: int          # of the output in the block


def blocks_of(page):
    """Return the fenced blocks of a page's text."""
    return [Block(match[1], match[2], match.start(2)) for match in _BLOCK.finditer(page)]


def shown_in(text):
    """Return the commands of a console block; a backslash at its end goes on with a command in the next line."""
    found, place, lines = [], 0, text.splitlines(keepends=True)
    while lines:
        line = lines.pop(0)
        place += len(line)
        if line.startswith("$ "):
            while line.endswith("\\\n"):
                more = lines.pop(0)
                place += len(more)
                line = line[:-2] + " " + more.lstrip()
            found.append(Shown(line[2:].strip(), "", place))
        elif found:
            found[-1] = found[-1]._replace(output=found[-1].output + line)
    return found


def matches(shown, printed):
    """Say whether a page may show this of what was printed."""
    pattern = "".join(r"(?:.*\n)*?" if line == "...\n" else re.escape(line).replace(r"\.\.\.", ".*?")
                      for line in shown.splitlines(keepends=True))
    return re.fullmatch(pattern, printed) is not None


class Reader:
    """Somebody who does what a page says, in a folder of their own that holds the project's `configs`.

    Parameters
    ----------
    folder : empty. stand_ins : text of the page -> what stands for it on this machine.
    """

    def __init__(self, folder, stand_ins=None):
        (folder / "configs").symlink_to(ROOT / "configs")
        self._folder, self._stand_ins = folder, stand_ins or {}
        self._names, self._status = {"__name__": "__page__"}, 0

    def differences(self, page):
        """Do all that a page says; yield (place, what it shows, what was printed) where they differ."""
        for block in blocks_of(page):
            if block.language == "console":
                for shown in shown_in(block.text):
                    printed = self.run(shown.command)
                    if not matches(shown.output, printed):
                        yield block.start + shown.start, shown.output, printed
            elif block.language == "pycon":
                if wrong := self._examples(block.text):
                    yield block.start, block.text, wrong
            elif block.language in ("toml", "python"):
                self._take(block)

    def run(self, command):
        """Return what a command prints."""
        if command == "echo $?":
            return f"{self._status}\n"
        for ours, theirs in self._stand_ins.items():
            command = command.replace(ours, theirs)
        with contextlib.chdir(self._folder):
            if command.startswith(PROGRAM) and not {"|", ">", "&"} & set(shlex.split(command)):
                self._status, printed = _simulator(shlex.split(command.removeprefix(PROGRAM)))
            else:
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=_HERE)
                self._status, printed = done.returncode, done.stdout + done.stderr * (done.returncode != 0)
        printed = printed.replace(str(self._folder), "...")
        for ours, theirs in self._stand_ins.items():
            printed = printed.replace(theirs, ours)
        return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())

    def _take(self, block):
        named = _FILE.match(block.text)
        if named:
            (self._folder / named[1]).write_text(block.text)
        elif block.language == "python":
            with contextlib.chdir(self._folder):
                exec(compile(block.text, "page", "exec"), self._names)

    def _examples(self, text):
        """Return what a doctest has to complain of; nothing: all is as shown."""
        test = doctest.DocTestParser().get_doctest(text, self._names, "page", None, 0)
        told = io.StringIO()
        with contextlib.chdir(self._folder):
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.write, clear_globs=False)
        self._names |= test.globs
        return told.getvalue()


def _simulator(arguments):
    """Return exit status and output of the simulator; what goes to stderr is output only where it fails."""
    printed, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
        try:
            status = cli.main(arguments)
        except SystemExit as end:           # of argparse, for --help
            status = end.code or 0
    return status, printed.getvalue() + told.getvalue() * (status != 0)


def updated(page, folder, stand_ins=None):
    """Return a page that shows what its commands print now."""
    wrong = list(Reader(folder, stand_ins).differences(page))
    for start, shown, printed in reversed(wrong):
        if page[start:start + 3] == ">>>":
            print(printed, file=sys.stderr)     # for people to look at
        else:
            page = page[:start] + printed + page[start + len(shown):]
    return page


def main():
    """Update pages."""
    import tempfile
    os.environ["COLUMNS"] = "80"
    sys.path[:] = map(os.path.abspath, sys.path)        # processes of a study begin in the reader's folder
    for name in sys.argv[1:]:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(updated(path.read_text(), Path(folder)))


if __name__ == "__main__":
    main()
