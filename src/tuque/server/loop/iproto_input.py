"""Input of IPROTO connections, and when it is run (SPEC I2, I4, I7).

Requests run in order of arrival, up to a share of each turn; the rest runs after other
connections had their turn.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.timers import PIECE, TURN_WORK
from tuque.server.access.login import STRANGE_MAX
from tuque.server.commands.iproto import answer
from tuque.server.loop.fairness import UNRUN_MAX, is_stranger, note_unrun
from tuque.server.loop.housekeeping import note_many
from tuque.server.loop.output import Output
from tuque.server.state.client import LIGHT, TURN_BYTES, Wired, weigh
from tuque.server.state.server import Server
from tuque.wire.commands.rows import LIGHT_WORK
from tuque.wire.proto.iproto import E_MSGPACK, BrokenStream, Request, error_reply

UNRUN_BYTES: Final = 1 << 20  # beyond it nothing more is read while requests cannot run

VALUES_OF_UNIT: Final = 32  # of a long frame, looked at for a unit of work
LEAST_READ: Final = 10  # units of it that go on in any turn
PLAIN_NS: Final = 50_000  # a call that takes less is not long
LONG_COMMANDS_MAX: Final = 4  # long calls of one connection that run side by side (L2.7)


def answer_timed(s: Server, w: Wired, request: Request) -> None:
    """Run the request; what is not short counts towards the time of the turn (L2.11)."""
    began_ns: i64 = s.system.work_ns()
    answer(s, w, request)
    spent_ns: i64 = s.system.work_ns() - began_ns
    if spent_ns >= PLAIN_NS:
        s.note_long(spent_ns)


@final
class IprotoDoor:
    """Reads IPROTO connections and runs their requests."""

    def __init__(self, s: Server, output: Output) -> None:
        self.s = s
        self.output = output
        self.stalled: list[Wired] = []  # with requests still to run

    def has_work(self) -> bool:
        """Whether the next turn must not wait for a socket."""
        return len(self.stalled) > 0 and self.s.paused_until_ms <= self.s.n.now_ms

    def read(self, w: Wired, most: i64) -> None:
        """[I2] Read up to `most` bytes, and run the whole requests among them."""
        s = self.s
        try:
            data = w.receive(most)
        except BlockingIOError:
            return
        except OSError:
            self.output.close(w)
            return
        if len(data) == 0:
            self.output.on_end(w, not w.is_stalled)
            return
        s.figures.in_bytes += len(data)
        if w.is_closing:
            return  # a broken stream is not read further
        w.last_ms = s.n.now_ms
        w.reader.feed(data)
        if not w.is_stalled:
            self.run(w)
            s.figures.much_bytes += w.take_much()
            if w.reader.held_bytes + w.weight > LIGHT:
                weigh(s.n, w)
        elif w.reader.held_bytes > UNRUN_MAX and is_stranger(s, w):
            note_unrun(s, w, UNRUN_MAX)
            self.output.close(w)
        elif w.reader.held_bytes > UNRUN_BYTES and not w.is_full:
            w.is_full = True
            self.output.watch(w)

    def run(self, w: Wired) -> None:
        """Run requests until the turn's share is used, clients are paused, or all are run."""
        s = self.s
        w.is_stalled = False
        before = w.requests
        work = s.n.work
        most = work + (PIECE if work < TURN_WORK else LIGHT_WORK)
        while not w.is_closing and not w.is_closed:
            if s.n.work + w.requests - before >= most:
                w.spent_turn = s.figures.turns  # L2.10
            is_spent = w.spent_turn == s.figures.turns
            is_busy = is_spent or w.has_much() or w.long_commands >= LONG_COMMANDS_MAX
            if s.paused_until_ms > s.n.now_ms or is_busy or s.stop_requested:
                w.is_stalled = True  # C3.9, L2.7
                self.stalled.append(w)
                if len(w.out) > 0:
                    s.touch(w)
                return
            try:
                before_looks = w.reader.looks
                room = max(most - s.n.work, LEAST_READ)
                request = w.reader.next(room * VALUES_OF_UNIT)
            except BrokenStream as error:
                w.out.append(error_reply(0, E_MSGPACK, error.text))  # I2.4
                w.is_closing = True
                w.lingers = True
                s.figures.broken += 1
                break
            s.n.work += (w.reader.looks - before_looks) // VALUES_OF_UNIT
            if request is None and w.reader.long is not None:  # L2.7
                w.half_since_ms = 0
                w.spent_turn = s.figures.turns
                continue
            if request is None:
                break
            w.requests += 1
            if w.requests > STRANGE_MAX and is_stranger(s, w):
                note_many(s, w, STRANGE_MAX)
                w.is_closing = True
                break
            answer_timed(s, w, request)
        if w.reader.held_bytes == 0:
            w.half_since_ms = 0
        elif w.half_since_ms == 0 or w.requests > before:
            w.half_since_ms = s.n.now_ms
        if len(w.out) > 0 or w.is_closing:
            s.touch(w)

    def run_stalled(self) -> None:
        """Continue with requests left by the last turn."""
        if not self.has_work():
            return
        stalled = self.stalled
        self.stalled = []
        made: i64 = 0
        for i, w in enumerate(stalled):
            if made > TURN_BYTES:
                self.stalled += stalled[i:]  # L2.8
                return
            if w.is_closed:
                continue
            try:
                self.run(w)
            except Exception as error:
                self.output.on_bug(w, error)
                continue
            made += w.out_bytes
            self.s.figures.much_bytes += w.take_much()
            if w.is_stalled or w.is_closed:
                continue
            if w.is_full:
                w.is_full = False
                self.output.watch(w)
            if w.has_ended:
                if w.is_waiting():
                    self.output.close(w)
                else:
                    w.is_closing = True
                    self.s.touch(w)
