"""`simulator export` writes whole folders, or says why not."""
import pytest

from results.export.runs import small_run
from simulator import cli


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("small"))


def test_what_is_there_is_replaced_only_if_asked(results, capsys):
    command = ["export", str(results), "--as", "csv"]
    assert cli.main(command) == 0
    assert capsys.readouterr().out == f"exported to {results}_csv\n"
    assert cli.main(command) == 2
    assert "exported results exist; --overwrite replaces them" in capsys.readouterr().err
    assert cli.main([*command, "--overwrite"]) == 0


def test_a_folder_with_something_else_is_left_alone(results, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")

    assert cli.main(["export", str(results), "--as", "vidur", "--out", str(tmp_path), "--overwrite"]) == 2
    assert "holds mine.txt, which no `export` writes" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_results_that_are_not_there_are_named(tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()

    assert cli.main(["export", str(tmp_path / "none"), "--as", "vidur"]) == 2
    assert "none: no such folder" in capsys.readouterr().err
    assert cli.main(["export", str(empty), "--as", "vidur"]) == 2
    assert "summary.json: no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [empty]


def test_a_table_that_was_not_written_is_named(tmp_path, capsys):
    out = small_run(tmp_path, **{"output.iterations": False})

    assert cli.main(["export", str(out), "--as", "simai"]) == 2
    assert "needs /iterations, which the run did not write" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["vllm", "compose", "llm-d", "dynamo"])
def test_servers_are_those_of_a_file(results, format, capsys):
    assert cli.main(["export", str(results), "--as", format]) == 2
    assert capsys.readouterr().err == (
        f"{results}: a folder; --as {format} writes the servers of an experiment, a file; results of a run, a folder: "
        "--as blis, csv, parquet, simai, vidur\n")


@pytest.mark.parametrize("command", ["run", "validate", "workload", "fit", "predict"])
def test_a_folder_in_place_of_an_experiment_is_called_one(results, command, capsys):
    more = ["--prefill", "5"] if command == "predict" else []
    assert cli.main([command, str(results), *more]) == 2
    assert capsys.readouterr().err == (f"{results}: a folder, expected a TOML file; the experiment of these results is "
                                       f"{results}/resolved.toml\n")


def test_an_unknown_format_is_refused(results, capsys):
    with pytest.raises(SystemExit):
        cli.main(["export", str(results), "--as", "xlsx"])
    assert "invalid choice: 'xlsx'" in capsys.readouterr().err
