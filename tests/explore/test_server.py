"""The server answers its own page on this machine, and nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.explore import ExplorerServer
from commsim.explore.process import Question

JSON = {"Content-Type": "application/json"}
FIRST = {"page": "a page", "question": 1}
Questions = Iterator[Question]


def asked(
    server: ExplorerServer, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Return status, text and headers of a request; `path` is below the key unless it has a /."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    where = path if path.startswith("/") else f"/{server.key}/{path}"
    text = body if isinstance(body, str | None) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, where, text, {**(JSON if body is not None else {}), **named})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return found


def test_it_listens_to_this_machine_alone(server: ExplorerServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.key) >= 20


@pytest.mark.parametrize("name", ["", "explore.css", "explore.js", "viewer.js", "theme.js"])
def test_the_page_and_its_parts(server: ExplorerServer, name: str) -> None:
    status, text, headers = asked(server, "GET", name)
    assert status == 200
    assert len(text) > 300
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_parts_of_the_page_name_no_other_place(server: ExplorerServer) -> None:
    for name in ("", "explore.css", "explore.js", "viewer.js", "theme.js"):
        text = asked(server, "GET", name)[1].replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text


@pytest.mark.parametrize(
    "path",
    ["/", "/explore.js", "/wrong-key/", "/wrong-key/run", "/é/", "../pyproject.toml",
     "explore.html/../../server.py", "%2e%2e/server.py", "worker.py"],
)  # fmt: skip
def test_nothing_else_is_handed_out(server: ExplorerServer, path: str) -> None:
    from urllib.parse import quote

    status, text, _ = asked(server, "GET", quote(path, safe="/%."))
    assert status == 404
    assert text.startswith("commsim: ")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "[::ffff:1.2.3.4]"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_others_are_refused(server: ExplorerServer, headers: dict[str, str]) -> None:
    assert asked(server, "GET", "", **headers)[0] == 403
    assert asked(server, "POST", "run", FIRST, **headers)[0] == 403


def test_a_forwarded_port_is_this_machine_too(server: ExplorerServer, questions: Questions) -> None:
    """`ssh -L 9000:127.0.0.1:8417` shows the page under another port."""
    there = {"Host": "localhost:9000", "Origin": "http://localhost:9000"}
    assert asked(server, "POST", "stop", body(next(questions)), **there)[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{", 400),
        ("[]", 400),
        ("[" * 9000, 400),
        ('"run"', 400),
        ({**FIRST, "chosen": {"nodes": [1]}}, 400),
        ({**FIRST, "chosen": []}, 400),
        ({**FIRST, "op": 3}, 400),
        ({**FIRST, "source": "/etc/passwd"}, 400),
        ({**FIRST, "chosen": {}, "ask": "report"}, 400),
        ({"chosen": {}}, 400),
        ({"page": 1, "question": 1}, 400),
        ({"page": "a page", "question": "1"}, 400),
        ("x" * 20_000, 413),
    ],
)
def test_a_request_is_small_and_one_of_the_pages(
    server: ExplorerServer, body: Any, status: int
) -> None:
    found, text, _ = asked(server, "POST", "run", body)
    assert found == status
    assert text.count("\n") == 1


def test_a_form_of_another_page_is_no_request(server: ExplorerServer) -> None:
    assert asked(server, "POST", "run", "{}", Content_Type="text/plain")[0] == 415
    assert asked(server, "POST", "start", {})[0] == 404
    assert asked(server, "GET", "run")[0] == 404
    assert asked(server, "PUT", "run", {})[0] == 501


def test_a_length_must_be_one(server: ExplorerServer) -> None:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    connection.putrequest("POST", f"/{server.key}/run")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "-1")
    connection.endheaders()
    assert connection.getresponse().status == 411
    connection.close()


def body(question: Question, **said: Any) -> dict[str, Any]:
    return {"page": question.page, "question": question.number, **said}


def kinds_of(text: str) -> list[str]:
    return [json.loads(line)["kind"] for line in text.splitlines()]


def test_a_run_comes_line_by_line(server: ExplorerServer, questions: Questions) -> None:
    status, text, headers = asked(
        server, "POST", "run", body(next(questions), chosen={"microbatches": 4})
    )
    assert (status, headers["Content-Type"]) == (200, "application/x-ndjson")
    kinds = kinds_of(text)
    assert kinds[0] == "progress"
    assert kinds[-1] == "run"


def test_a_stop_may_arrive_before_its_question(
    server: ExplorerServer, questions: Questions
) -> None:
    stopped, later = body(next(questions)), body(next(questions))
    asked(server, "POST", "stop", stopped)
    assert kinds_of(asked(server, "POST", "run", stopped)[1]) == ["stopped"]
    assert kinds_of(asked(server, "POST", "run", later)[1])[-1] == "run"


def test_a_value_that_is_not_offered_is_an_error_in_one_sentence(
    server: ExplorerServer, questions: Questions
) -> None:
    _, text, _ = asked(
        server, "POST", "run", body(next(questions), chosen={"schedule": "/etc/passwd.csv"})
    )
    (error,) = [json.loads(line) for line in text.splitlines() if '"error"' in line]
    assert error["message"] == "schedule: '/etc/passwd.csv' is not among its values."


def test_a_port_that_is_taken_is_said(server: ExplorerServer) -> None:
    with pytest.raises(ScenarioError, match=f"--port {server.server_port}: cannot be listened on"):
        ExplorerServer("llama3-8b", port=server.server_port)
