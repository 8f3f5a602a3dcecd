"""
The server of the page: this machine alone, a secret in its address, and no file but its own.

A request must name a host of this machine (a page elsewhere that resolves to it does not), come
from this page if it says where it comes from, be JSON if it asks something, and be small. What it
may say is which offered value each control has (`controls.check_choices`): no path, no code.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from commsim.errors import ScenarioError
from commsim.explore.process import Question, WorkerProcess

__all__ = ["ExplorerServer"]

PORT = 8417
"""Where the page is unless another port is asked for, or this one is taken."""

_HERE = Path(__file__).parent / "page"
_MOST_BYTES = 16_384  # of a request: the choices of all controls take a tenth of it
_SECONDS = 30.0  # that a request may take to arrive
_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline';"
        " img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_Asked = tuple[Question, dict[str, Any]]
_SCRIPTS = ("choices.js", "curves.js", "answer.js", "explore.js")


class ExplorerServer(ThreadingHTTPServer):
    """Serves the page of one scenario; `port` None is the usual one, or any that is free."""

    daemon_threads = True

    def __init__(self, source: str, sets: tuple[str, ...] = (), *, port: int | None = None) -> None:
        self.key = secrets.token_urlsafe(16)
        self.worker = WorkerProcess(source, sets)
        try:
            super().__init__((_HOSTS[0], _port(port)), _Handler)
        except OSError as error:
            self.worker.close()
            raise ScenarioError(
                f"--port {port}: cannot be listened on ({error.strerror or error}). Give another,"
                " or none for one that is free."
            ) from None

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{_HOSTS[0]}:{self.server_port}/{self.key}/"

    def hello(self) -> dict[str, Any]:
        """Return what the page is made from, once the scenario has been read.

        Raises:
            ScenarioError: what is wrong with the scenario.
        """
        said = self.worker.hello()
        if said["kind"] == "failed":
            raise ScenarioError(said["message"])
        return said

    def server_close(self) -> None:
        """Give up the port, and end the process that simulates."""
        super().server_close()
        self.worker.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that went away is no news."""


def _port(asked: int | None) -> int:
    """Return the port to listen on: 0 leaves it to the system."""
    import socket

    if asked is not None:
        return asked
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((_HOSTS[0], PORT))
        except OSError:
            return 0
    return PORT


class _Handler(BaseHTTPRequestHandler):
    """One request of the page."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "commsim", ""
    timeout = _SECONDS

    @property
    def _explorer(self) -> ExplorerServer:
        return cast(ExplorerServer, self.server)

    def do_GET(self) -> None:
        """Hand out the page and its parts."""
        name = self._asked_for()
        if name is None:
            return
        if name == "start":
            self._send(_json(self._said(*_START)), "application/json")
        elif name in _PAGES:
            kind = _PAGES[name]
            self._send(self._page(name).encode(), f"{kind}; charset=utf-8")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page.")

    def do_POST(self) -> None:
        """Answer what the page asks, line by line as answers come."""
        name = self._asked_for()
        if name is None:
            return
        if name not in ("run", "curves", "report", "stop"):
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page.")
            return
        if (found := self._request()) is None:
            return
        question, request = found
        if name == "stop":
            self._explorer.worker.stop(question)
            self._send(b"{}", "application/json")
            return
        self._begin(HTTPStatus.OK, "application/x-ndjson")
        self._pass_on(self._explorer.worker.ask(question, {**request, "ask": name}))

    def _pass_on(self, answers: Iterator[Mapping[str, Any]]) -> None:
        """Write answers as they come, each a chunk."""
        try:
            for answer in answers:
                line = _json(answer) + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the page has gone; what it asks next stops this answer

    def _page(self, name: str) -> str:
        """Return a part of the page; what is as in a report comes from the worker."""
        if name == "explore.js":
            return "".join(_text(script) for script in _SCRIPTS)
        if name == "viewer.js":
            return str(self._said("viewer")["viewer"])
        if name == "explore.css":
            return str(self._said("style")["style"]) + _text(name)
        return _text(name or "explore.html")

    def _said(self, *names: str) -> dict[str, Any]:
        """Return a part of what the worker said first; empty where it failed."""
        said = self._explorer.worker.hello()
        return {name: said.get(name, "") for name in names}

    def _asked_for(self) -> str | None:
        """Return the name below the secret; None where the request was refused."""
        host = urlsplit(f"//{self.headers.get('Host', '')}")
        origin = self.headers.get("Origin")
        if host.hostname not in _HOSTS or self.headers.get("Sec-Fetch-Site") == "cross-site":
            self._refuse(HTTPStatus.FORBIDDEN, "this page is for this machine alone.")
            return None
        if origin is not None and origin != f"http://{self.headers['Host']}":
            self._refuse(HTTPStatus.FORBIDDEN, "this page answers itself alone.")
            return None
        key, _, name = urlsplit(self.path).path.removeprefix("/").partition("/")
        if not hmac.compare_digest(key.encode(), self._explorer.key.encode()):
            self._refuse(
                HTTPStatus.NOT_FOUND, "the address lacks its key, as `explore` printed it."
            )
            return None
        return name

    def _request(self) -> _Asked | None:
        """Return what the page asks; None where it was refused."""
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "JSON is expected.")
            return None
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "its length is missing.")
            return None
        if len(length) > 9 or int(length) > _MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too long.")
            return None
        try:
            found = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            found = None
        request = _understood(found)
        if request is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "the request is not one that this page makes.")
        return request

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._begin(status, kind, len(body))
        self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, length: int | None = None) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._send(f"commsim: {why}\n".encode(), "text/plain; charset=utf-8", status)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on the terminal."""


_START = ("name", "source", "controls", "ops", "experts")
_PAGES = {"": "text/html", "explore.css": "text/css", "explore.js": "text/javascript",
          "viewer.js": "text/javascript", "theme.js": "text/javascript"}  # fmt: skip


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _understood(found: Any) -> _Asked | None:
    """Return which question of the page it is, `chosen` values by control and the `op` of curves.

    None where it is no request of this page.
    """
    if not isinstance(found, dict) or not set(found) <= {"page", "question", "chosen", "op"}:
        return None
    page, number = found.get("page"), found.get("question")
    chosen, op = found.get("chosen", {}), found.get("op", "all_reduce")
    if not isinstance(page, str) or not isinstance(number, int) or not isinstance(op, str):
        return None
    plain = isinstance(chosen, dict) and all(
        isinstance(value, str | int | float | bool) for value in chosen.values()
    )
    return (Question(page, number), {"chosen": chosen, "op": op}) if plain else None


def _json(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
