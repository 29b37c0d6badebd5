"""Python's hash of a text."""
import os
import subprocess
import sys

import pytest

from simulator.workload.drawing.vidur.python_hash import python_hash


def test_siphash_2_4_gives_the_digests_of_python_3_10():
    # PYTHONHASHSEED=0 python3.10 -c 'print(hash("6442"))', and so on
    assert [python_hash(text) for text in ("", "6442", "exactly8", "12342", "x" * 20)] == [
        0, 4326193715490199691, 6352599398701623531, 661287394774793443, -8358451861393040796]


@pytest.mark.skipif(sys.hash_info.algorithm not in ("siphash13", "siphash24"), reason="another hash")
def test_hashes_are_those_of_this_python():
    texts = [text[:n] for text in ("6442", "a longer text than one word", "x" * 300) for n in (1, 4, 7, 8, 9, 999)]
    command = [sys.executable, "-c", "import sys; print([hash(text) for text in sys.argv[1:]])", *texts]
    printed = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True)
    rounds = {"siphash13": (1, 3), "siphash24": (2, 4)}[sys.hash_info.algorithm]

    assert str([python_hash(text, *rounds) for text in texts]) == printed.stdout.strip()
