"""Shells complete commands, options, files, folders, names, keys and what keys may hold."""
import os
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

from simulator import cli, registry
from simulator.config import describe
from simulator.shell import completion


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Write the script of each shell; return their folder."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in completion.SHELLS:
        (folder / shell).write_text(completion.script(cli.parser_of(*cli.STUDIES), shell))
    return folder


def completed(words, folder, script):
    """Return what bash offers for the last of these words, as readline asks for it."""
    shell = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); '
             '_simulator simulator "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; '
             'printf "%s\\n" "${COMPREPLY[@]}"')
    ran = subprocess.run(["bash", "-c", shell, "bash", str(script), *words], cwd=folder, capture_output=True, text=True,
                         check=True)
    assert ran.stderr == ""
    return [line for line in ran.stdout.splitlines() if line]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a_chat.toml").touch()
    (tmp_path / "a [b] c.toml").touch()
    (tmp_path / "results").mkdir()
    (tmp_path / "results.csv").touch()
    (tmp_path / "config.json").touch()
    return tmp_path


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(("words", "offered"), [
    ("comp", ["compare", "completion"]),
    ("run --thr", ["--threads"]),
    ("predict --pre", ["--prefill"]),
    ("run a_ch", ["a_chat.toml"]),
    ("run a", ["a [b] c.toml", "a_chat.toml"]),
    ("run --out res", ["results"]),
    ("exa", ["example"]),
    ("example quick", ["quickstart"]),
    ("example quickstart --to res", ["results"]),
    ("list sch", ["scheduler"]),
    ("describe sch", ["scheduler"]),
    ("plan llama-3.1-4", ["llama-3.1-405b", "llama-3.1-405b-fp8"]),
    ("plan llama-3.1-8b --gpu h20", ["h20-3e-141gb", "h20-96gb", "h200-sxm-141gb"]),
    ("support llama-3.1-8b l40", ["l40", "l40s"]),
    ("describe scheduler sar", ["sarathi", "sarathi_slo"]),
    ("describe router llu", ["llumnix"]),
    ("describe hardware h100-sxm-8", ["h100-sxm-80gb"]),
    ("describe model llama-3.3-7", ["llama-3.3-70b"]),
    ("describe model conf", ["config.json"]),
    ("describe latency-backend ro", []),
    ("describe kv-tier lm", ["lmcache"]),
    ("describe key study.statistics.mi", ["study.statistics.min_tail"]),
    ("describe study cap", ["capacity"]),
    ("describe table study.st", ["study.statistics", "study.statistics.warmup"]),
    ("run a_chat.toml --set engine.max_num_seq", ["engine.max_num_seqs="]),
    ("run --set engine.scheduler = sar", ["sarathi", "sarathi_slo"]),
    ("run --set engine.scheduler =", sorted(registry.KINDS["scheduler"].entries)),
    ("run --set = engine.max_num_seq", ["engine.max_num_seqs="]),
    ("run --set engine.scheduler=sar", ["engine.scheduler=sarathi", "engine.scheduler=sarathi_slo"]),
    ("sweep --set study.design = so", ["sobol"]),
    ("sweep --set hardware.name = h200", ["h200-sxm-141gb"]),
    ("run --set pools.0.engine.scheduler = sjf", ["sjf_aging"]),
    ("run --set engine.enable_prefix_caching = t", ["true"]),
    ("run --set engine.scheduler = vllm a_ch", ["a_chat.toml"]),
    ("capacity --slo ttft_ms.p9", ["ttft_ms.p90=", "ttft_ms.p95=", "ttft_ms.p99="]),
    ("capacity --slo good", ["goodput_share="]),
    ("capacity a_chat.toml --vary topology.rep", ["topology.replicas"]),
    ("profile-layers llama-3.3-7", ["llama-3.3-70b"]),
    ("profile-layers llama-3.3-70b h200", ["h200-sxm-141gb"]),
    ("profile-layers --node dgx-h", ["dgx-h100", "dgx-h100-superpod"]),
    ("score --backend roof", ["roofline"]),
    ("completion z", ["zsh"])])
def test_bash_offers_what_may_stand_there(words, offered, folder, scripts):
    assert sorted(completed(["simulator", *words.split(" ")], folder, scripts / "bash")) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_offers_every_name_that_can_be_described(folder, scripts):
    for kind in describe.TITLES:
        assert completed(["simulator", "describe", kind, ""], folder, scripts / "bash")[:len(describe.names(kind))] == (
            describe.names(kind))
    assert completed(["simulator", "describe", ""], folder, scripts / "bash") == list(describe.TITLES)


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.parametrize(("line", "offered"), [
    ("describe sched", "scheduler"), ("describe scheduler sar", "sarathi_slo"),
    ("describe key study.statistics.mi", "study.statistics.min_tail"),
    ("run --set engine.max_num_s", "engine.max_num_seqs="),
    ("run --set engine.scheduler=sar", "engine.scheduler=sarathi"),
    ("profile-layers llama-3.3-7", "llama-3.3-70b"), ("run a_ch", "a_chat.toml")])
def test_fish_offers_what_may_stand_there(line, offered, folder, scripts):
    ran = subprocess.run(["fish", "-c", f"source {scripts / 'fish'}; complete -C 'simulator {line}'"], cwd=folder,
                         capture_output=True, text=True, check=True)
    assert offered in [each.split("\t")[0] for each in ran.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
@pytest.mark.parametrize(("line", "after"), [
    ("describe schedu", "describe scheduler "), ("describe scheduler sarathi_", "describe scheduler sarathi_slo "),
    ("describe key study.statistics.min_", "describe key study.statistics.min_tail "),
    ("run --set engine.max_num_seq", "run --set engine.max_num_seqs="),
    ("run --set engine.scheduler=sjf", "run --set engine.scheduler=sjf_aging "),
    ("profile-layers llama-3.3-7", "profile-layers llama-3.3-70b "), ("run a_ch", "run a_chat.toml ")])
def test_zsh_offers_what_may_stand_there(line, after, folder, scripts):
    assert f"simulator {after}" in typed_in_zsh(f"simulator {line}\t", folder, scripts / "zsh")


def typed_in_zsh(keys, folder, script):
    """Return what a terminal shows after keys were typed in zsh."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update({"TERM": "dumb", "COLUMNS": "200", "ZDOTDIR": str(folder)})
        os.execvp("zsh", ["zsh", "-f", "-i"])
    setup = f'autoload -U compinit; compinit -u -D; eval "$(<{script})"; simulator() {{ : }}; PS1=READY; echo\r'
    shown = _until(terminal, setup, "\nREADY")
    os.write(terminal, keys.encode())
    shown = _until(terminal, "", None)
    os.write(terminal, b"\x03exit\r")
    os.close(terminal)
    os.waitpid(child, 0)
    return shown


def _until(terminal, keys, end):
    """Return what comes until it ends so, or until nothing comes for a second."""
    os.write(terminal, keys.encode())
    shown, limit_s = "", time.monotonic() + 30
    while time.monotonic() < limit_s and not (end and shown.replace("\r", "").endswith(end)):
        ready, *_ = select.select([terminal], [], [], 10 if end else 1)
        if not ready:
            break
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_shell_gets_every_command(shell, capsys):
    assert cli.main(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert all(command in script for command in (*cli.COMMANDS, *cli.STUDIES))


def test_without_shtab_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)

    assert cli.main(["completion", "zsh"]) == 2
    assert capsys.readouterr().err == "completion needs shtab: install it with pip install 'simulator[completion]'\n"
