"""The HTTP face of the page: Python's own server, on this machine, for one person."""
import hmac
import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from simulator.results.figures import theme
from simulator.study.exploring.answering import plain_array

FOLDER = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_BYTES = 2**20              # of a body
MOST_DROPPED = 2**24            # bytes of a longer one that are read before the answer
MOST_THREADS = 64               # connections at once
IDLE_S = 30.0                   # of a connection
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                               "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class PageServer(ThreadingHTTPServer):
    """Serves the files of a page, and answers its questions.

    token : that a browser must have, in the address that the command prints, then in a cookie: experiments name
        classes of users, so that to ask is to run code.

    Parameters
    ----------
    address : host and port; port 0: any free one.
    page : name of the HTML file.
    answers : by path; each takes the body of a POST, and returns the answer.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], page: str, answers: Mapping[str, Answer]):
        self.page, self.answers, self.token = page, answers, secrets.token_urlsafe(16)
        self._places = threading.BoundedSemaphore(MOST_THREADS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)

    @property
    def address(self) -> str:
        """The address to open."""
        host, port = self.server_address[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """Name of the cookie; ports share the cookies of their host."""
        return f"simulator-{self.server_address[1]}"

    def process_request(self, request, client_address) -> None:
        """Serve a connection in a thread of its own, unless there are too many."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:
        """Serve a connection, and count it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request, client_address) -> None:
        """Ignore faults of connections: a browser that leaves is no fault."""


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    server: PageServer

    def do_GET(self) -> None:
        """Send a file of the page, or exchange the token of an address for a cookie."""
        url = urlsplit(self.path)
        if not self._is_of_this_page():
            return self._send(403, b"The host or the origin is of another page.", "text/plain")
        if url.path == "/" and (given := parse_qs(url.query).get("token")):
            if not hmac.compare_digest(given[0].encode(), self.server.token.encode()):
                return self._send(403, b"The token is of another session: open the address that the command printed.",
                                  "text/plain")
            cookie = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Lax; Path=/"
            return self._send(303, b"", "text/plain", {"Location": "/", "Set-Cookie": cookie})
        if not self._has_cookie():
            return self._send(403, b"Open the address that the command printed.", "text/plain")
        if url.path == "/theme.css":
            return self._send(200, theme.variables().encode(), "text/css")
        name = self.server.page if url.path == "/" else url.path[1:]
        if name not in FILES:
            return self._send(404, b"There is no such file.", "text/plain")
        return self._send(200, (FOLDER / name).read_bytes(), KINDS[Path(name).suffix])

    def do_POST(self) -> None:
        """Answer a question of the page."""
        answer = self.server.answers.get(self.path)
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            self._drop(int(length) if length.isdecimal() else 0)
            return self._send(413, b"The question is too long.", "text/plain")
        body = self.rfile.read(int(length))
        if not (self._is_of_this_page() and self._has_cookie()):
            return self._send(403, b"Open the address that the command printed.", "text/plain")
        if answer is None:
            return self._send(404, b"There is no such question.", "text/plain")
        if self.headers.get_content_type() != "application/json":
            return self._send(415, b"Expected JSON.", "text/plain")
        try:
            asked = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return self._send(400, b"Expected a JSON object.", "text/plain")
        return self._send(200, msgspec.json.encode(answer(asked), enc_hook=plain_array), "application/json")

    def _is_of_this_page(self) -> bool:
        """Return whether a request names this machine, and is of a page of this server."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        name = urlsplit(f"//{host}").hostname or ""
        return (is_loopback(name) or name == self.server.server_address[0]) and (
            origin is None or urlsplit(origin).netloc == host)

    def _has_cookie(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self.server.token.encode())

    def _drop(self, length: int) -> None:
        """Read a body that is refused: many clients look for an answer only when all is sent."""
        left = min(length, MOST_DROPPED)
        while left > 0 and (piece := self.rfile.read(min(left, 2**16))):
            left -= len(piece)

    def _send(self, status: int, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        charset = "" if kind == "application/json" else "; charset=utf-8"
        for name, value in (HEADERS | {"Content-Type": kind + charset, "Content-Length": str(len(body))}
                            | dict(more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Return the name of the server, without versions."""
        return "simulator"

    def log_message(self, format: str, *values: Any) -> None:
        """Print nothing."""


FILES = frozenset(path.name for path in FOLDER.glob("*.*") if path.suffix in KINDS)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
