"""The scripts of docs/hpc.md, run word for word by stand-ins for sbatch and srun."""
import re
import subprocess
from pathlib import Path

import pytest

from simulator import cli
from simulator.study.sweep.segments import FOLDER, read_all
from support.slurm import Slurm, array_of, options_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "hpc.md").read_text()
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def slurm(tmp_path, heeded_signals):
    return Slurm(tmp_path / "slurm", {"SCRATCH": str(tmp_path), "PYTHONPATH": str(ROOT)})


@pytest.fixture
def script(study, tmp_path):
    """Write the script of the page, with fewer tasks and cores; the study lies beside it."""
    text = BLOCKS[0].replace("0-31%16", "0-2%2").replace("--cpus-per-task=8", "--cpus-per-task=2")
    assert text != BLOCKS[0] and text.startswith("#!/bin/bash\n")
    path = tmp_path / "sweep.sh"
    path.write_text(text.replace("study.toml", study.name))
    (tmp_path / "logs").mkdir()
    return path


def tables_of(study, out):
    assert cli.main(["sweep", str(study), "--out", str(out), "--jobs", "1", "--quiet"]) == 0
    return (out / "table.h5").read_bytes()


@pytest.mark.ci
@pytest.mark.slow
def test_array_runs_each_run_once(script, study, slurm, tmp_path):
    assert slurm.sbatch(script, tmp_path) == {0: [0], 1: [0], 2: [0]}
    names = sorted(path.name for path in (tmp_path / "study" / FOLDER).iterdir())
    assert [re.sub(r"[^-]*$", "", name) for name in names] == [f"shard-{i}-of-3-0-" for i in range(3)]
    assert len(read_all(tmp_path / "study").finished) == 8 and not (tmp_path / "study" / "table.h5").exists()
    assert "done" in (tmp_path / "logs" / "sweep-7_1.log").read_text()
    merge = re.search(r'--wrap "(.*)"', BLOCKS[1])[1]
    subprocess.run(["bash", "-c", merge], check=True, env=slurm.environment, cwd=tmp_path, stdout=subprocess.DEVNULL)
    assert (tmp_path / "study" / "table.h5").read_bytes() == tables_of(study, tmp_path / "whole")


def lines_in(folder):
    return sum(path.read_bytes().count(b"\n") for path in folder.iterdir()) if folder.is_dir() else 0


@pytest.mark.ci
@pytest.mark.slow
def test_task_whose_time_is_over_is_put_back_into_the_queue(script, rewrite, slurm, tmp_path):
    study = rewrite(("seeds = 2", "seeds = 150"))
    folder = tmp_path / "study" / FOLDER
    ended = slurm.sbatch(script, tmp_path, warn_after=lambda: lines_in(folder))
    assert all(turns[-1] == 0 for turns in ended.values()) and any(turns[0] == 143 for turns in ended.values())
    names = {path.name for path in folder.iterdir()}
    assert any(re.match(r"shard-\d-of-3-1-", name) for name in names)      # SLURM_RESTART_COUNT
    assert lines_in(folder) == len(read_all(tmp_path / "study").finished) == 600      # none twice
    assert cli.main(["study", "merge", str(tmp_path / "study")]) == 0
    assert (tmp_path / "study" / "table.h5").read_bytes() == tables_of(study, tmp_path / "whole")


def test_pages_options_are_known_and_its_array_is_a_range():
    options = options_of(BLOCKS[0])
    assert array_of(options["array"]) == (0, 31, 1) and options["signal"] == "TERM@120" and "requeue" in options


def test_commands_of_the_page_are_commands(capsys):
    found = re.findall(r"python -m simulator (sweep|study (?:merge|status)) ([^`\n]*)", PAGE)
    assert len(found) > 8
    for command, rest in found:
        for option in re.findall(r"--([a-z-]+)", rest.split("#")[0]):
            with pytest.raises(SystemExit):
                cli.main([*command.split()[:1], "--help"])
            assert f"--{option}" in capsys.readouterr().out
