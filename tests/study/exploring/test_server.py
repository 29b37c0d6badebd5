"""The HTTP face of the page: files, JSON, the token, and what is refused."""
import http.client
import json
import threading
from contextlib import closing

import pytest

from simulator import cli
from simulator.study.exploring.server import MOST_BYTES, PageServer


@pytest.fixture(scope="module")
def server():
    with PageServer(("127.0.0.1", 0), "explore.html", {"/api/echo": lambda asked: asked}) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def send(server, method, path, body=None, **headers):
    """Return status, headers and body of a request; a header of "" is left out."""
    host = f"127.0.0.1:{server.server_address[1]}"
    given = {"Host": host, "Cookie": f"{server.cookie}={server.token}", "Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection(host)) as connection:
        connection.request(method, path, body, {name: value for name, value in given.items() if value})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def test_the_token_of_the_address_becomes_a_cookie(server):
    status, headers, _ = send(server, "GET", f"/?token={server.token}", Cookie="")

    assert (status, headers["Location"]) == (303, "/")
    assert headers["Set-Cookie"] == f"{server.cookie}={server.token}; HttpOnly; SameSite=Lax; Path=/"
    assert send(server, "GET", "/?token=guessed", Cookie="")[0] == 403


@pytest.mark.parametrize(("path", "kind", "begin"), [
    ("/", "text/html; charset=utf-8", b"<!doctype html>"), ("/charts.js", "text/javascript; charset=utf-8", b'"use'),
    ("/page.css", "text/css; charset=utf-8", b":root"), ("/theme.css", "text/css; charset=utf-8", b":root{--paper")])
def test_files_of_the_page(server, path, kind, begin):
    status, headers, body = send(server, "GET", path)

    assert (status, headers["Content-Type"]) == (200, kind)
    assert body.startswith(begin)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")


@pytest.mark.parametrize("path", ["/../server.py", "/server.py", "/page/explore.html", "/%2e%2e/desk.py"])
def test_no_other_file_is_sent(server, path):
    assert send(server, "GET", path)[0] == 404


@pytest.mark.parametrize(("headers", "status"), [
    ({}, 200), ({"Cookie": ""}, 403), ({"Cookie": "a=b"}, 403), ({"Host": "evil.example"}, 403),
    ({"Origin": "https://evil.example"}, 403), ({"Content_Type": "text/plain"}, 415)])
def test_a_question_comes_from_the_page_alone(server, headers, status):
    assert send(server, "POST", "/api/echo", b'{"a": 1}', **headers)[0] == status


@pytest.mark.parametrize(("body", "path", "status"), [
    (b"[1]", "/api/echo", 400), (b"{", "/api/echo", 400), (b"[" * 100_000, "/api/echo", 400), (b"{}", "/api/no", 404),
    (b" " * (MOST_BYTES + 1), "/api/echo", 413)])
def test_bad_questions_are_refused(server, body, path, status):
    assert send(server, "POST", path, body)[0] == status


def test_an_answer_is_json(server):
    assert json.loads(send(server, "POST", "/api/echo", b'{"a": [1.5, null]}')[2]) == {"a": [1.5, None]}


@pytest.mark.parametrize(("options", "message"), [
    (["--host", "0.0.0.0"], "--host 0.0.0.0: other machines can reach it, and the page runs code"),
    (["nothing.toml"], "nothing.toml: No such file or directory")])
def test_options_that_are_refused(capsys, options, message):
    assert cli.main(["explore", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(server, capsys):
    port = str(server.server_address[1])

    assert cli.main(["explore", "--port", port]) == 2
    assert f"--port {port}: " in capsys.readouterr().err
