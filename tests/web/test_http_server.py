"""The server as a process: slow clients, signals with open streams, restarts, https, addresses."""

from __future__ import annotations

import re
import signal
import socket
import threading
from pathlib import Path

import pytest

from holdfast.web.http_server import PortInUse, bind, is_loopback
from tests.cli.processes import command
from tests.harness import until
from tests.web.processes import WebProcess, is_closed, trusting

KEYS = Path(__file__).parent / "keys"
REQUEST = "POST /login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/x-www-form-urlencoded\r\n"


def test_one_address_is_printed_and_another_when_it_was_used(tmp_path: Path) -> None:
    with WebProcess(tmp_path) as server:
        assert len(server.urls) == 1
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/login\?token=[\w-]{43}", server.urls[0])
        client = server.log_in()
        page = client.get("/")
        assert page.status_code == 200
        assert "server" not in page.headers
        assert len(set(server.urls)) == 2
        assert client.post("/login", data={"token": server.urls[0].partition("token=")[2]}).status_code == 403
        assert server.stop() == 0
        assert len(server.urls) == 2
        secrets = [url.partition("token=")[2] for url in server.urls]
        assert not any(secret in line for line in server.errors for secret in secrets)


def test_a_restart_keeps_sessions_and_their_ends(tmp_path: Path) -> None:
    with WebProcess(tmp_path) as server:
        port = server.port
        client, other = server.log_in(), server.log_in()
        csrf = re.search(r'name="csrf" value="(\w+)"', other.get("/").text)
        assert csrf is not None
        kept, stolen = dict(client.cookies), dict(other.cookies)
        assert other.post("/logout", data={"csrf": csrf[1]}).status_code == 303
    with WebProcess(tmp_path, port=port) as server:
        assert server.client(cookies=kept).get("/").status_code == 200
        assert server.client(cookies=stolen).get("/").status_code == 303


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_also_with_open_streams_and_half_sent_requests(tmp_path: Path, number: int) -> None:
    with WebProcess(tmp_path) as server:
        client = server.log_in()
        half = server.connect()
        half.sendall(b"GET / HT")
        heard: list[object] = []

        def read() -> None:
            with client.stream(
                "GET", "/api/v1/events?view=run&run=run-1", headers={"Accept": "text/event-stream"}
            ) as stream:
                heard.append(stream.status_code)
                heard.extend(len(part) > 0 for part in stream.iter_raw())
            heard.append("end")

        reader = threading.Thread(target=read)
        reader.start()
        until(lambda: len(heard) >= 2 or not reader.is_alive(), "the stream is open")
        assert heard[0] == 200
        assert server.stop(number) == 0
        reader.join(240)
        assert heard[-1] == "end"
        assert is_closed(half)
        half.close()
        client.close()
        assert not [line for line in server.errors if "Traceback" in line or "Cancel" in line]


def test_clients_that_are_too_slow_are_disconnected_and_others_are_served(tmp_path: Path) -> None:
    with WebProcess(tmp_path, "--timeout", "1") as server:
        silent, headers, body, after = (server.connect() for _ in range(4))
        headers.sendall(REQUEST.format(port=server.port).encode())
        whole = REQUEST.format(port=server.port) + "Content-Length: 1000\r\n\r\ntoken="
        body.sendall(whole.encode())
        after.sendall(f"GET /login HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\nGET".encode())
        for connection in (silent, headers, body, after):
            assert is_closed(connection)
            connection.close()
        until(lambda: server.client().get("/login").status_code == 200, "others are served")


def test_a_client_that_sends_byte_by_byte_does_not_extend_its_time(tmp_path: Path) -> None:
    with WebProcess(tmp_path, "--timeout", "1") as server:
        connection = server.connect()
        sent = 0

        def send() -> bool:
            nonlocal sent
            try:
                connection.sendall(b"GET / HTTP/1.1\r\n"[sent : sent + 1] or b"a")
                sent += 1
            except ConnectionError:
                return True
            return False

        until(send, "the connection is cut")
        connection.close()


def test_a_client_that_does_not_read_its_response_is_disconnected(tmp_path: Path) -> None:
    with WebProcess(tmp_path, "--timeout", "1") as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((server.host, server.port))
        request = f"GET /static/htmx.min.js HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
        connection.setblocking(False)

        def is_cut() -> bool:
            try:
                connection.send(request.encode() * 10)
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
            return False

        until(is_cut, "the connection is cut")


def test_requests_that_are_too_large_or_ambiguous_are_refused(tmp_path: Path) -> None:
    with WebProcess(tmp_path) as server:
        host = f"Host: 127.0.0.1:{server.port}\r\n"
        for text in (
            f"GET / HTTP/1.1\r\n{host}X-Large: {'x' * 100_000}\r\n\r\n",
            f"GET /{'x' * 100_000} HTTP/1.1\r\n{host}\r\n",
            f"GET / HTTP/1.1\r\n{host}{host}\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            f"POST /login HTTP/1.1\r\n{host}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            f"GET / HTTP/1.1\r\n{host}Bad Header: x\r\n\r\n",
            f"GET / HTTP/1.1\r\n{host}Name: a\rb\r\n\r\n",
        ):
            with server.connect() as connection:
                connection.sendall(text.encode())
                answer = connection.recv(65536)
                assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 414", b"HTTP/1.1 431"), (text[:60], answer[:60])


def test_websockets_are_not_spoken(tmp_path: Path) -> None:
    with WebProcess(tmp_path) as server:
        upgrade = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "x",
            "Sec-WebSocket-Version": "13",
        }
        done = server.client().get("/", headers=upgrade)
        assert done.status_code == 303


def test_https_is_served_with_cookies_that_are_bound_to_the_host(tmp_path: Path) -> None:
    options = (
        "--host",
        "localhost",
        "--https-cert",
        str(KEYS / "localhost.pem"),
        "--https-key",
        str(KEYS / "localhost.key"),
    )
    with WebProcess(tmp_path, *options) as server:
        assert server.urls[0].startswith("https://localhost:")
        with server.client(verify=trusting(KEYS / "localhost.pem")) as client:
            done = client.post("/login", data={"token": server.urls[0].partition("token=")[2]})
            assert done.headers["set-cookie"].startswith(f"__Host-holdfast_{server.port}=")
            assert "; Secure" in done.headers["set-cookie"]
            assert client.get("/").status_code == 200


def test_a_port_in_use_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortInUse, match=f"--port {port % 65535 + 1}"):
            bind("127.0.0.1", port)
        (tmp_path / "holdfast.db").touch()
        done = command("web", "--port", str(port), cwd=tmp_path, XDG_STATE_HOME=str(tmp_path))
        assert done.code == 1
        assert f"port {port} of 127.0.0.1 is in use" in done.err
        assert "--port 0" in done.err


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1"])
def test_loopback_addresses_are_recognized(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "2001:db8::1", "::ffff:192.0.2.1"])
def test_addresses_that_other_machines_reach_are_recognized(host: str) -> None:
    assert not is_loopback(host)


def test_a_free_port_is_picked() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0
        assert listener.family == socket.AF_INET
