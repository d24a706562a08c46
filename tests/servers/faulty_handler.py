"""What the loopback servers share: answers that go wrong on a schedule, and a log of requests.

The faults are those of ``streamfeed.testing``; a request's operation is ``GET``, ``HEAD`` or ``LIST``, its path the
decoded one. Two more happen only on a wire.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfeed.testing import Changed, CutBody, Effect, Fault, Latency, Reset, Schedule, ShortRead, Stall, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Asked", "FaultyHandler", "FaultyServer", "ResetBody", "StalledBody"]


@dataclass(frozen=True, slots=True)
class ResetBody:
    """The connection is reset in the middle of the body (``CutBody`` closes it in order)."""


@dataclass(frozen=True, slots=True)
class StalledBody(Stall):
    """The stall comes in the middle of the body."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the log keeps it."""

    op: str
    path: str
    query: str
    headers: Mapping[str, str]
    """names in lower case"""
    status: int
    """0 where no answer was sent"""
    effects: tuple[str, ...] = ()


class FaultyServer:
    """A threaded HTTP server on a free loopback port; ``schedule`` may be replaced at any time."""

    def __init__(self, handler: type[FaultyHandler]) -> None:
        self.schedule = Schedule()
        self.log: list[Asked] = []
        bound = type(handler.__name__, (handler,), {"front": self})
        self._server = _Server(("127.0.0.1", 0), bound)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The server's address, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, *faults: Fault | Any) -> None:
        """Replace the schedule, and forget the log."""
        self.schedule = Schedule(faults)
        self.log.clear()

    def count(self, op: str, part: str = "") -> int:
        """Return how many requests of ``op`` came in for paths that contain ``part``."""
        return sum(asked.op == op and part in asked.path for asked in self.log)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are part of the tests."""


class FaultyHandler(BaseHTTPRequestHandler):
    """One connection. Subclasses answer with :meth:`reply`, once they have the effects of :meth:`begin`."""

    protocol_version = "HTTP/1.1"
    front: Any
    """the server object that this handler belongs to"""
    op = path_asked = ""

    def setup(self) -> None:
        """Send answers at once."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_: Any) -> None:
        """Stay silent."""

    def begin(self, op: str, path: str, start: int | None = None, end: int | None = None) -> list[Effect] | None:
        """Note a request; return its effects, or ``None`` where one of them was the answer."""
        self.op, self.path_asked = op, path
        self.effects: list[Effect] = self.front.schedule.note(op, path, start, end)
        for effect in self.effects:
            match effect:
                case Latency():
                    time.sleep(effect.seconds)
                case StalledBody():
                    pass
                case Stall():
                    wait(effect)
                case Reset():
                    self.note(0)
                    self.reset()
                    return None
                case Status():
                    self.refuse(effect)
                    return None
                case _:
                    pass
        return list(self.effects)

    def refuse(self, effect: Status) -> None:
        """Answer with a status; the body names the reason as S3 does."""
        after = {} if effect.retry_after is None else {"Retry-After": f"{effect.retry_after:g}"}
        reason = effect.reason or "SlowDown"
        body = f"<?xml version='1.0'?><Error><Code>{reason}</Code><Message>as scheduled</Message></Error>".encode()
        self.reply(effect.code, {"Content-Type": "application/xml", **after}, body, whole=True)

    def reply(self, status: int, headers: Mapping[str, str], body: bytes, *, whole: bool = False) -> None:
        """Send an answer, with what its effects do to the body unless it goes out ``whole``."""
        self.note(status)
        self.send_response(status)
        length = {} if "Content-Length" in headers else {"Content-Length": str(len(body))}
        for name, value in {**headers, **length}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.send_body(body, () if whole else self.effects)

    def send_body(self, body: bytes, effects: Sequence[Effect | ResetBody]) -> None:
        """Send the body, or half of it."""
        half = len(body) // 2
        for effect in effects:
            if isinstance(effect, StalledBody):
                self.wfile.write(body[:half])
                wait(effect)
                body = body[half:]
            elif isinstance(effect, CutBody | ResetBody):
                self.wfile.write(body[:half])
                self.reset() if isinstance(effect, ResetBody) else self.hang_up()
                return
        self.wfile.write(body)

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()
        self.connection.close()

    def hang_up(self) -> None:
        """Close the connection in order."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def note(self, status: int) -> None:
        """Write this request to the log."""
        query = self.path.partition("?")[2]
        headers = {name.lower(): value for name, value in self.headers.items()}
        names = tuple(type(effect).__name__ for effect in self.effects)
        self.front.log.append(Asked(self.op, self.path_asked, query, headers, status, names))

    def changed(self) -> Changed | None:
        """Return how the object asked for has changed by now."""
        found: Changed | None = self.front.schedule.changed(self.path_asked)
        return found

    def shortened(self, body: bytes) -> bytes:
        """Return what a short read leaves of ``body``: a byte at least, since a range of none cannot be said."""
        for effect in self.effects:
            if isinstance(effect, ShortRead):
                body = body[: max(1, int(len(body) * effect.keep))]
        return body


def wait(stall: Stall) -> None:
    """Wait until the test ends the stall."""
    if isinstance(stall.until, threading.Event):
        stall.until.wait(stall.most_s)
        return
    last = time.monotonic() + stall.most_s
    while not Path(stall.until).exists() and time.monotonic() < last:
        time.sleep(0.01)
