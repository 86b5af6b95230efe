"""Both faces of the client behind one way to call them, a scripted node, and a real one."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import hiredis

import tuque.aio
from tuque import Client, Retry

ROOT = Path(__file__).resolve().parents[2]
NODE_ID = "a" * 40
START_S = 20.0
ID = "D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-05a1"
ADDED = f"+{ID}\r\n".encode()
FAST = Retry(base_s=0.01, cap_s=0.02)

Words = list[bytes]
Answer = bytes | Callable[[Words], bytes | None] | None


def hello_of(*nodes: tuple[str, int, int], own: str = NODE_ID) -> bytes:
    """The bytes of a HELLO answer; the first node is the one that speaks."""
    parts = [f"*{2 + len(nodes)}\r\n:1\r\n$40\r\n{own}\r\n"]
    for at, (host, port, priority) in enumerate(nodes):
        node_id = own if at == 0 else f"{at:040d}"
        texts = [node_id, host, str(port), str(priority)]
        parts.append("*4\r\n" + "".join(f"${len(t)}\r\n{t}\r\n" for t in texts))
    return "".join(parts).encode()


def in_turn(*answers: bytes | None) -> Callable[[Words], bytes | None]:
    """An answer for each time the command is asked; the last one stays."""
    left = list(answers)

    def answer(words: Words) -> bytes | None:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


class ScriptedNode:
    """A server whose answer to each command is written down; remembers what it was asked.

    An answer of None is silence, b"" closes the connection; a callable is given the words.
    """

    CLOSE = b""
    SILENCE = None

    def __init__(self, tls: ssl.SSLContext | None = None, path: str = "") -> None:
        self._tls = tls
        self._path = path
        self.answers: dict[str, Answer] = {"PING": b"+PONG\r\n"}
        self.asked: list[Words] = []
        self.connections = 0
        self.port = 0
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.start()

    def use(self, tls: ssl.SSLContext) -> None:
        """New connections get this context."""
        self._tls = tls

    @property
    def url(self) -> str:
        if self._path:
            return f"tuque+unix://{self._path}"
        return f"{'tuques' if self._tls else 'tuque'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        if self._path:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self._path)
            listener.listen()
        else:
            listener = socket.create_server(("127.0.0.1", self.port))
            self.port = listener.getsockname()[1]
        self.answers.setdefault("HELLO", hello_of(("", self.port, 1)))
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """Stops listening and closes all connections."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.drop()

    def drop(self) -> None:
        """Closes all connections, as a node that dies does."""
        for sock in list(self._open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        self._open.clear()

    def count(self, name: str) -> int:
        return sum(words[0] == name.encode() for words in self.asked)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        reader = hiredis.Reader()
        try:
            if self._tls is not None:
                self._open.discard(sock)
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._open.add(sock)
            while data := sock.recv(65536):
                reader.feed(data)
                while (words := reader.gets()) is not False:
                    self.asked.append(words)
                    answer = self.answers.get(words[0].decode(), b"-ERR unknown command\r\n")
                    if callable(answer):
                        answer = answer(words)
                    if answer == self.CLOSE:
                        sock.shutdown(socket.SHUT_RDWR)
                        return
                    if answer is not None:
                        sock.sendall(answer)
        except OSError:
            pass
        finally:
            self._open.discard(sock)
            sock.close()


class Threads:
    """The threaded client, as it is."""

    kind = "sync"

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self.client = Client(url, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def piped(self, *asked: tuple[Any, ...], **options: Any) -> list[Any]:
        pipe = self.client.pipeline()
        for name, *args in asked:
            given = args.pop() if args and isinstance(args[-1], dict) else {}
            getattr(pipe, name)(*args, **given)
        return pipe.execute(**options)

    def scanned(self, name: str, **options: Any) -> list[Any]:
        return list(getattr(self.client, name)(**options))

    def first(self, found: Any) -> Any:
        return next(found)

    def close(self) -> None:
        self.client.close()


class Loop:
    """The asyncio client, each call run to its end on one loop."""

    kind = "aio"

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self.client = tuque.aio.Client(url, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            return self._runner.run(found(*args, **options))

        return call

    def piped(self, *asked: tuple[Any, ...], **options: Any) -> list[Any]:
        pipe = self.client.pipeline()
        for name, *args in asked:
            given = args.pop() if args and isinstance(args[-1], dict) else {}
            getattr(pipe, name)(*args, **given)
        return self._runner.run(pipe.execute(**options))

    def scanned(self, name: str, **options: Any) -> list[Any]:
        async def gather(found: AsyncIterator[Any]) -> list[Any]:
            return [item async for item in found]

        return self._runner.run(gather(getattr(self.client, name)(**options)))

    def first(self, found: Any) -> Any:
        return self._runner.run(anext(found))

    def close(self) -> None:
        if not self.client._is_closed:
            self._runner.run(self.client.close())
        self._runner.close()


Face = Threads | Loop
Connect = Callable[..., Any]
