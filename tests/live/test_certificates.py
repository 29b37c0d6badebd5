"""A server with a certificate, and files that are none."""
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from simulator.errors import InputErrors
from simulator.live.certificates import tls_context
from support.live_site import COMPLETIONS, HELLO, Site

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificate")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return the files of a certificate for this machine, signed by itself, and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    files = [str(folder / name) for name in ("cert.pem", "key.pem")]
    subprocess.run([OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=served", "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0],
                    "-keyout", files[1]], check=True, capture_output=True)
    return files


def test_a_client_that_trusts_the_certificate_is_served(tmp_path, pair):
    client = ssl.create_default_context(cafile=pair[0])
    site = Site(tmp_path, tls=(tls_context(*pair), client))
    status, answer = site.ask(COMPLETIONS, HELLO)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 6)


def test_certificate_and_key_may_be_in_one_file(tmp_path, pair):
    both = tmp_path / "both.pem"
    both.write_text("".join(Path(file).read_text() for file in pair))
    assert isinstance(tls_context(str(both), None), ssl.SSLContext)
    assert tls_context(None, None) is None


def test_no_one_is_asked_for_a_password(tmp_path, pair):
    key = str(tmp_path / "key.pem")
    subprocess.run([OPENSSL, "pkcs8", "-topk8", "-in", pair[1], "-passout", "pass:secret", "-out", key], check=True)
    with pytest.raises(InputErrors, match="without a password"):
        tls_context(pair[0], key)


@pytest.mark.parametrize(("files", "fault"), [
    ((None, 1), "expected --ssl-certfile with it"), (("none.pem", 1), "--ssl-certfile .*cannot be read"),
    ((0, "none.pem"), "--ssl-keyfile .*cannot be read"), ((1, 1), "as PEM"), ((0, None), "as PEM")])
def test_files_with_faults(tmp_path, pair, files, fault):
    with pytest.raises(InputErrors, match=fault):
        tls_context(*(pair[file] if isinstance(file, int) else file and str(tmp_path / file) for file in files))
