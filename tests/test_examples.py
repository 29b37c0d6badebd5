"""`example`: the experiments of configs/ for those who have no checkout, whole, and nothing of theirs is lost."""
import re
from pathlib import Path

import pytest

from simulator import cli
from simulator.config.load import load_experiment
from simulator.shell import examples
from simulator.study.capacity.capacity_table import CapacityTable
from simulator.study.compare_file import read_comparison
from simulator.study.sweep.study_file import SweepTable, read_study
from simulator.study.tuning.tune_table import TuneTable

CONFIGS = Path(__file__).parents[1] / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.toml"))
STUDIES = {"sweep": SweepTable, "capacity": CapacityTable, "tune": TuneTable}
BROUGHT = {"azure_conv", "vidur"}           # whose data is fetched by their reader


def lying_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_are_listed_with_what_they_show(capsys):
    assert cli.main(["example"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    for name, line in zip(NAMES, lines, strict=True):
        told = line.removeprefix(name).strip().removesuffix(" ...")
        assert (CONFIGS / f"{name}.toml").read_text().startswith(f"# {told}") and len(told) > 20


@pytest.mark.parametrize(("name", "others"), [
    ("linear", []),
    ("quickstart", []),
    ("fairness", ["admission.toml", "data/labelled.csv", "linear.toml"]),       # extends a file that extends another
    ("servegen", ["data/servegen/chunk-0-dataset.json", "data/servegen/chunk-0-trace.csv",
                  "data/servegen/chunk-1-dataset.json", "data/servegen/chunk-1-trace.csv",
                  "data/servegen/chunk-2-dataset.json", "data/servegen/chunk-2-trace.csv", "quickstart.toml"]),
    ("forest", ["data/forest/all_reduce.csv", "data/forest/attention.csv", "data/forest/mlp.csv", "quickstart.toml"]),
    ("compare_routers", ["quickstart.toml", "shared_prompts.toml", "weighted.toml"])])
def test_a_copy_has_the_files_that_it_names_where_it_looks_for_them(name, others, tmp_path, capsys):
    assert cli.main(["example", name, "--to", str(tmp_path)]) == 0

    names = [f"{name}.toml", *others]
    assert lying_in(tmp_path) == {each: (CONFIGS / each).read_bytes() for each in names}
    assert sorted(capsys.readouterr().out.split("\n\n")[0].splitlines()) == sorted(
        str(tmp_path / each) for each in names)


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_is_read_as_the_original_and_names_no_file_that_is_not_there(name, tmp_path):
    examples.write(name, tmp_path)

    here, there = (as_read(name, folder) for folder in (tmp_path, CONFIGS))
    assert here == there
    if name not in BROUGHT:
        named = re.findall(r"'FOLDER/([^']+)'", here)
        assert not [path for path in named if not (tmp_path / path).exists()]


def as_read(name, folder):
    """Return what the reader of its kind makes of an example, as text in which paths begin with FOLDER."""
    file, command = folder / f"{name}.toml", examples.command(name)
    if command in STUDIES:
        study = read_study(file, struct=STUDIES[command])
        read = study.settings, study.base, study.axes
    else:
        read = {"run": load_experiment, "compare": read_comparison}[command](file)
    return repr(read).replace(str(folder), "FOLDER")


def test_an_example_leaves_results_in_the_folder_where_it_runs():
    for name in NAMES:
        if examples.command(name) == "run":
            assert load_experiment(CONFIGS / f"{name}.toml").output.directory is None, name


@pytest.mark.parametrize(("name", "command"), [
    ("quickstart", "run"), ("compare_backends", "compare"), ("sweep_routers", "sweep"),
    ("capacity_replicas", "capacity"), ("tune_layouts", "tune")])
def test_the_command_that_runs_it_is_told(name, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["example", name]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"python -m simulator {command} {name}.toml"


def test_data_that_does_not_come_along_is_told(tmp_path, monkeypatch, capsys):
    own, target = tmp_path / "configs", tmp_path / "target"
    own.mkdir()
    (own / "traced.toml").write_text('workload = {type = "trace", path = "traces/mine.csv.gz", format = "native"}\n')
    monkeypatch.setattr(examples, "_folder", lambda: own)
    assert cli.main(["example", "traced", "--to", str(target)]) == 0

    assert capsys.readouterr().out == (
        f"{target}/traced.toml\n"
        f"{target}/traced.toml reads traces/mine.csv.gz, which does not come along: its first lines say where it is\n"
        f"\npython -m simulator run {target}/traced.toml\n")


def test_files_of_other_content_are_all_named_and_nothing_is_written(tmp_path, capsys):
    (tmp_path / "linear.toml").write_text("mine")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/labelled.csv").mkdir()
    before = sorted(tmp_path.rglob("*"))

    assert cli.main(["example", "fairness", "--to", str(tmp_path)]) == 2
    assert capsys.readouterr() == ("", "".join(
        f"{tmp_path}/{file}: exists, with other content, and is left alone; --to FOLDER writes elsewhere\n"
        for file in ("linear.toml", "data/labelled.csv")))
    assert sorted(tmp_path.rglob("*")) == before and (tmp_path / "linear.toml").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_no_place_to_write_through(tmp_path, capsys):
    (tmp_path / "quickstart.toml").symlink_to(tmp_path / "elsewhere.toml")

    assert cli.main(["example", "quickstart", "--to", str(tmp_path)]) == 2
    assert "quickstart.toml: exists" in capsys.readouterr().err and not (tmp_path / "elsewhere.toml").exists()


def test_files_of_the_same_content_are_left_as_they_are(tmp_path):
    examples.write("quickstart", tmp_path)
    written_ns = (tmp_path / "quickstart.toml").stat().st_mtime_ns

    examples.write("routing", tmp_path)         # extends quickstart.toml
    assert set(lying_in(tmp_path)) == {"quickstart.toml", "routing.toml"}
    assert (tmp_path / "quickstart.toml").stat().st_mtime_ns == written_ns


def test_a_place_that_cannot_be_written_is_told(tmp_path, capsys):
    (tmp_path / "file").touch()

    assert cli.main(["example", "quickstart", "--to", str(tmp_path / "file")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"{tmp_path}/file/quickstart.toml: cannot be written: ") and told.count("\n") == 1


@pytest.mark.parametrize(("name", "told"), [
    ("quickstrat", "; did you mean quickstart?"), ("quickstart.toml", "; did you mean quickstart?"),
    ("../models/llama-3.1-8b", "; `simulator example` lists them"), ("", "; `simulator example` lists them")])
def test_a_wrong_name_is_refused_with_the_nearest(name, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["example", name]) == 2
    assert capsys.readouterr() == ("", f'no example "{name}"{told}\n')
    assert not list(tmp_path.iterdir())


def test_an_example_is_whole_wherever_python_found_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(examples.facts, "shipped", lambda folder: CONFIGS / "data/.." / "../configs")
    examples.write("forest", tmp_path)
    assert (tmp_path / "data/forest/mlp.csv").exists()


def test_a_folder_without_a_name_is_refused(capsys):
    assert cli.main(["example", "--to", "there"]) == 2
    assert capsys.readouterr().err == "--to: needs the NAME of an example; `simulator example` lists them\n"
