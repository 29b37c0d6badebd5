"""Small files of metrics and logs."""
import json

from simulator.study.measured.source import Source


def source(tmp_path, text, name="file"):
    """Write a text, or JSON, and return it as a source."""
    (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
    return Source(str(tmp_path / name))
