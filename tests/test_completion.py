"""Shells complete commands, options, files and folders."""
import shutil
import subprocess
import sys

import pytest

from simulator import cli, completion


def completed(words, tmp_path):
    """Return what bash offers for the last of these words."""
    script = tmp_path / "completion.bash"
    script.write_text(completion.script(cli.parser_of(*cli.STUDIES), "bash"))
    asked = " ".join(f"'{word}'" for word in words)
    shell = (f"source {script}; COMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; "
             f"_shtab_simulator simulator '{words[-1]}' '{words[-2]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    ran = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=True)
    return ran.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(("words", "offered"), [
    (["simulator", "comp"], ["compare", "completion"]),
    (["simulator", "run", "--thr"], ["--threads"]),
    (["simulator", "predict", "--pre"], ["--prefill"]),
    (["simulator", "run", "a_ch"], ["a_chat.toml"]),
    (["simulator", "run", "--out", "res"], ["results"]),
    (["simulator", "exa"], ["example"]),
    (["simulator", "example", "quick"], ["quickstart"]),
    (["simulator", "example", "quickstart", "--to", "res"], ["results"])])
def test_bash_offers_commands_options_files_and_folders(words, offered, tmp_path):
    (tmp_path / "a_chat.toml").touch()
    (tmp_path / "results").mkdir()
    (tmp_path / "results.csv").touch()

    assert sorted(completed(words, tmp_path)) == offered


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_shell_gets_every_command(shell, capsys):
    assert cli.main(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert all(command in script for command in (*cli.COMMANDS, *cli.STUDIES))


def test_without_shtab_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)

    assert cli.main(["completion", "zsh"]) == 2
    assert capsys.readouterr().err == "completion needs shtab: install it with pip install 'simulator[completion]'\n"
