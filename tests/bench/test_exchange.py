"""Requests outside the load, and servers that answer them badly."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from drut.bench.exchange import ToolExchange
from drut.errors import RequestError


@pytest.mark.parametrize("head", ["Connection: close", "Content-Length: 1000"])
def test_a_server_that_drips_ends_with_the_time_for_it(head: str) -> None:
    over = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
            try:
                for _ in range(1200):  # a minute, of what may be for ever
                    connection.sendall(b"x")
                    if over.wait(0.05):
                        return
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=[server], daemon=True)
        thread.start()
        begun = time.monotonic()
        exchange = ToolExchange(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=0.3)
        with pytest.raises(RequestError, match=r"no reply within 0\.3 s"):
            exchange.post("/v1/completions", {})
        assert time.monotonic() - begun < 30.0
        over.set()
        exchange.close()
        thread.join(5.0)


def test_an_answer_that_is_cut_short_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        def cut() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}")

        thread = threading.Thread(target=cut, daemon=True)
        thread.start()
        exchange = ToolExchange(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(RequestError, match="cut short"):
            exchange.send("/metrics")
        exchange.close()
        thread.join(5.0)
