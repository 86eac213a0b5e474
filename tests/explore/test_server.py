"""Claim: the page is for this machine only, loads nothing from elsewhere, and ends in one line."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from mmcc._cli.app import main

pytest.importorskip("dash")

from mmcc.explore import _server as server
from mmcc.explore._settings import DEFAULTS

PORT = 8050
HERE = {"Host": f"127.0.0.1:{PORT}"}


@pytest.fixture(scope="module")
def client():
    desk = server.make_desk()
    yield server.make_app(PORT, desk).server.test_client()
    desk.close()


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}"])
def test_this_machine_is_served(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": f"evil.example:{PORT}"},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1"},
        {"Host": f"127.0.0.1.evil.example:{PORT}"},
        {"Host": f"0.0.0.0:{PORT}"},
        {**HERE, "Origin": "http://evil.example"},
        {**HERE, "Origin": "null"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/assets/explore.js"])
def test_other_hosts_and_origins_are_refused(client, headers, path):
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403
    assert "mmcc explore" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.1:80"])
def test_the_port_that_browsers_leave_out(host):
    desk = server.make_desk()
    at_80 = server.make_app(80, desk).server.test_client()
    try:
        assert at_80.get("/", headers={"Host": host}).status_code == 200
        own = {"Host": host, "Origin": f"http://{host}"}
        assert at_80.get("/_dash-layout", headers=own).status_code == 200
        for other in ({"Host": "evil.example"}, {"Host": host, "Origin": "http://evil.example"}):
            assert at_80.get("/", headers=other).status_code == 403
    finally:
        desk.close()


def test_nothing_comes_from_elsewhere(client):
    index = client.get("/", headers=HERE)
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", index.text)
    sources = re.findall(r"""(?:src|href)=["']([^"']+)""", index.text)
    assert len(sources) >= 5
    for source in sources:
        with client.get(source, headers=HERE) as answer:
            assert answer.status_code == 200, source
    policy = index.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    config = json.loads(client.get("/_dash-layout", headers=HERE).text)
    assert config["props"]["className"] == "page"


def test_no_tools_of_developers(client):
    index = client.get("/", headers=HERE).text
    config = json.loads(re.search(r'id="_dash-config"[^>]*>(.*?)</script>', index)[1])
    assert config.get("ui") is not True
    assert not config.get("hot_reload")
    assert config["serve_locally"] is not False if "serve_locally" in config else True


def test_index_basics(client):
    index = client.get("/", headers=HERE).text
    assert '<html lang="en">' in index
    assert "<title>mmcc explore</title>" in index
    assert re.search(r'<meta name="viewport" content="width=device-width', index)


def test_a_wrong_value_is_answered_and_not_a_fault(client):
    """The request a browser sends, with markup for a number: 200, and JSON holds it as text."""
    dependencies = json.loads(client.get("/_dash-dependencies", headers=HERE).text)
    asked = next(d for d in dependencies if "epsilon-plot" in d["output"])
    values = {**DEFAULTS, "prob": "<img src=x onerror=alert(1)>"}
    body = {
        "output": asked["output"],
        "outputs": [
            dict(zip(("id", "property"), part.rsplit(".", 1), strict=True))
            for part in asked["output"].strip(".").split("...")
        ],
        "inputs": [{**i, "value": values.get(i["id"])} for i in asked["inputs"]],
        "changedPropIds": ["prob.value"],
    }
    answer = client.post("/_dash-update-component", json=body, headers=HERE)
    assert answer.status_code == 200
    response = answer.get_json()["response"]
    assert response["problem"]["children"].startswith("Prob needs a number")
    assert response["prob-field"]["className"] == "field wrong"
    assert response["unfinished"]["data"] is False


@pytest.mark.parametrize(
    "body", ["", "{", "{}", "[]", "null", '{"output": []}', '{"output": "x.children"}']
)
def test_what_the_page_never_asks_is_refused_quietly(client, body, caplog):
    answer = client.post(
        "/_dash-update-component", data=body, content_type="application/json", headers=HERE
    )
    assert answer.status_code == 400
    assert caplog.records == []


def test_the_server_listens_on_the_loopback_alone():
    listening, desk = server.make_listening(0)
    try:
        assert listening.socket.getsockname() == ("127.0.0.1", listening.port)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        with socket.create_connection(("127.0.0.1", listening.port), timeout=1800) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n")
            assert connection.recv(100).split()[1] == b"403"
        listening.shutdown()
        thread.join()
    finally:
        desk.close()
        listening.server_close()


# ----------------------------------------------------------------------------------- the command


def refused(capsys, *words: str) -> str:
    assert main(["explore", "--no-browser", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_port_in_use_is_one_sentence(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused(capsys, "--port", str(taken.getsockname()[1]))
    assert "in use" in said
    assert "--port 0" in said


@pytest.mark.parametrize("port", ["-1", "65536", "abc", ""])
def test_a_wrong_port_is_one_sentence(capsys, port):
    assert "port" in refused(capsys, "--port", port)


@pytest.mark.parametrize("missing", ["dash", "flask", "plotly", "werkzeug"])
def test_without_a_package_the_remedy_is_said(missing):
    """In a process of its own, where nothing is imported yet."""
    hidden = (
        "import sys; sys.modules[sys.argv[1]] = None; from mmcc._cli.app import main;"
        "sys.exit(main(['explore', '--no-browser', '--port', '0']))"
    )
    run = subprocess.run(
        [sys.executable, "-c", hidden, missing], capture_output=True, text=True, timeout=1800
    )
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), run.stderr
    assert "pip install 'mmcc[explore]'" in run.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a process are for POSIX")
def test_the_address_is_printed_and_ctrl_c_ends_it():
    # A run of the tests in the background ignores Ctrl-C, and what it starts would do so too.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from mmcc._cli.app import main; sys.exit(main())"
    )
    words = ["explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        try:
            line = run.stdout.readline()
            assert re.fullmatch(
                r"mmcc explore: http://127\.0\.0\.1:\d+/ \(Ctrl-C stops it\)\n", line
            )
            run.send_signal(signal.SIGINT)
            _, errors = run.communicate(timeout=1800)
        finally:
            run.kill()
    assert (run.returncode, errors) == (0, "")
