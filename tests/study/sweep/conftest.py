import pytest

from support.studies import EXPERIMENT, STUDY


@pytest.fixture
def study(tmp_path):
    """Write a study of four points and eight runs; return its path."""
    (tmp_path / "base.toml").write_text(EXPERIMENT)
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def rewrite(study):
    """Replace parts of the study file."""
    def replace(*pairs):
        text = study.read_text()
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        study.write_text(text)
        return study

    return replace
