"""Commands that write into a folder refuse a place that can be none, before they compute."""
import pytest

from simulator import cli
from simulator.errors import InputErrors, OutputError
from simulator.results import directory
from simulator.study.accuracy import files as scored
from simulator.study.calibration import files as calibrated
from simulator.study.measured import write as measured
from simulator.study.measured.record import Measured

CHECKS = {"run": directory.check_free, "score": lambda place: scored.check_free(place, False),
          "import": lambda place: measured.check_free(place, False),
          "calibrate": lambda place: calibrated.check_free(place, "a question", True, False)}
EXPERIMENT = "engine = {max_model_len = 64, num_gpu_blocks = 100}\nlatency = {backend = 'linear'}\n"


@pytest.mark.parametrize("command", CHECKS)
@pytest.mark.parametrize(("place", "said"), [("file", "a file of this name exists"),
                                             ("file/below", "file is no directory")])
def test_a_file_is_no_folder_and_has_none(tmp_path, command, place, said):
    (tmp_path / "file").touch()
    with pytest.raises(InputErrors, match=said):
        CHECKS[command](tmp_path / place)


def test_the_folder_of_a_benchmark_is_looked_at_before_its_run(tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    status = cli.main(["bench", "serve", "--experiment", str(tmp_path / "a.toml"), "--num-prompts", "2",
                       "--random-input-len", "4", "--random-output-len", "2", "--save-result", "--result-dir",
                       str(tmp_path / "file")])

    assert status == 2 and "a file of this name exists" in capsys.readouterr().err


def test_a_disk_that_fills_up_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OutputError, match=r"steps\.csv: cannot be written: No space left on device"):
        measured.write(Measured("a", [], [{}]), tmp_path / "out", {})
    assert list((tmp_path / "out").iterdir()) == []
