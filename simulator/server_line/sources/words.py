"""Shell text as words of simple commands: quotes, continuations, comments, variables; nothing is executed."""
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

NAME = re.compile(r"[A-Za-z_]\w*")
BRACED = re.compile(r"([A-Za-z_]\w*)(:?[-+?=])?(.*)", re.DOTALL)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
ENDS = "\n;&|()"
UNSET = "\0"                        # before and after the name of a variable that is not set, in a word
NOT_RUN = "\1"                      # before and after a command substitution


class Command(NamedTuple):
    """A simple command: its words, and the variables set when it would run."""

    words: list[str]
    environment: dict[str, str]


def commands(text: str, environment: Mapping[str, str]) -> list[Command]:
    """Return the simple commands of a text, each with the variables set before it."""
    known, found = dict(environment), []
    for words in _Scanner(text.replace("\r\n", "\n"), known).simple_commands():
        if words and words[0] in ("export", "set", "declare", "readonly"):
            words = [word for word in words[1:] if ASSIGNMENT.fullmatch(word)]
        own = {}
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            own[match[1]] = match[2]
            words = words[1:]
        if words:
            found.append(Command(words, known | own))
        else:
            known.update(own)
    return found


class _Scanner:
    """Reads characters; `known` grows while commands are taken from it, so that later lines see assignments."""

    def __init__(self, text: str, known: dict[str, str]):
        self.text, self.known, self.place = text, known, 0

    def simple_commands(self) -> Iterator[list[str]]:
        words: list[str] = []
        while self.place < len(self.text):
            char = self.text[self.place]
            if self.text.startswith("\\\n", self.place):
                self.place += 2
            elif char in " \t":
                self.place += 1
            elif char == "#":
                self._skip_line()
            elif char in "<>":
                if words and words[-1].isdigit() and self.text[self.place - 1].isdigit():
                    words.pop()                 # of a stream: 2>&1
                self._skip_redirection()
            elif char in ENDS:
                self.place += 1
                yield words
                words = []
            else:
                words += self._word()
        yield words

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.place)
        self.place = len(self.text) if end < 0 else end

    def _skip_redirection(self) -> None:
        while self.place < len(self.text) and self.text[self.place] in "<>&-0123456789 \t":
            self.place += 1
        if self.place < len(self.text) and self.text[self.place] not in ENDS:
            self._word()

    def _word(self) -> list[str]:
        """Return one word; several, or none, where a variable without quotes holds so many."""
        parts, bare, quoted = [""], True, False
        while self.place < len(self.text) and self.text[self.place] not in " \t<>" + ENDS:
            char = self.text[self.place]
            if char == "'":
                end = self._end_of("'")
                parts[-1] += self.text[self.place + 1:end]
                self.place, quoted = end + 1, True
            elif char == '"':
                parts[-1] += self._double()
                quoted = True
            elif char == "\\":
                parts[-1] += self.text[self.place + 1:self.place + 2].replace("\n", "")
                self.place += 2
            elif char in "$`":
                pieces = self._expansion().split(" ")
                parts[-1] += pieces[0]
                parts += pieces[1:]
                bare = False
            else:
                parts[-1] += char
                self.place += 1
        return parts if quoted and bare else [part for part in parts if part or quoted]

    def _end_of(self, quote: str) -> int:
        end = self.text.find(quote, self.place + 1)
        return len(self.text) if end < 0 else end

    def _double(self) -> str:
        self.place += 1
        found = ""
        while self.place < len(self.text) and self.text[self.place] != '"':
            char = self.text[self.place]
            if char == "\\" and self.text[self.place + 1:self.place + 2] in ('"', "\\", "$", "`", "\n"):
                found += self.text[self.place + 1].replace("\n", "")
                self.place += 2
            elif char in "$`":
                found += self._expansion()
            else:
                found += char
                self.place += 1
        self.place += 1
        return found

    def _expansion(self) -> str:
        if self.text[self.place] == "`" or self.text.startswith("$(", self.place):
            return self._substitution()
        if self.text.startswith("${", self.place):
            end = self.text.find("}", self.place)
            inside = self.text[self.place + 2:end if end >= 0 else len(self.text)]
            self.place = end + 1 if end >= 0 else len(self.text)
            return self._braced(inside)
        match = NAME.match(self.text, self.place + 1)
        if match:
            self.place = match.end()
            return value_of(match[0], self.known)
        special = self.text[self.place + 1:self.place + 2]
        self.place += 2 if special and special in "@*#?!0123456789$" else 1
        return "" if special and special in "@*" else "$"

    def _substitution(self) -> str:
        start, close = self.place, "`" if self.text[self.place] == "`" else ")"
        end = self.text.find(close, self.place + 1)
        self.place = len(self.text) if end < 0 else end + 1
        inside = self.text[start:self.place].strip("`$()")
        if close == ")" and NAME.fullmatch(inside) and inside in self.known:
            return self.known[inside]           # of Kubernetes, which has no other use of $(...)
        return f"{NOT_RUN}{inside}{NOT_RUN}".replace(" ", "\2")

    def _braced(self, inside: str) -> str:
        match = BRACED.fullmatch(inside)
        if match is None:
            return ""
        name, sign, other = match.groups()
        if sign in (":-", "-", ":=", "="):
            value = self.known.get(name)
            return other.strip("\"'") if value is None or (value == "" and sign[0] == ":") else value
        return value_of(name, self.known)


def value_of(name: str, environment: Mapping[str, str]) -> str:
    """Return the value of a variable, or a mark with its name."""
    return environment.get(name, f"{UNSET}{name}{UNSET}")


def faults_of(words: list[str]) -> list[str]:
    """Return the variables and substitutions that a server's words hang on."""
    text = " ".join(words)
    unset = [f"${{{name}}} is not set" for name in re.findall(f"{UNSET}(.*?){UNSET}", text)]
    return [*unset, *(f"$({run}) is not executed: write its value".replace("\2", " ")
                      for run in re.findall(f"{NOT_RUN}(.*?){NOT_RUN}", text))]
