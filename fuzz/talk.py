"""Talk to a whole node in the words of its three ports, and change what is said.

    python fuzz/talk.py --inputs 1000000        so many commands, requests and messages
    python fuzz/talk.py --seconds 60            for so long; the seed of each talk is new
    python fuzz/talk.py --only 4711             one talk again

A talk is 400 inputs from one seed: clients of RESP and IPROTO, other nodes, which know the secret,
and a stranger, who does not (fuzz_stranger.py), in turns and with time going by. What they say is
what the command table, the procedures of tubes and the classes of messages describe, with values
that are wrong in form or in content (fuzz_values.py). What must never happen is told in
fuzz_box.py. Needs no package.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]

from fuzz_box import FuzzBox  # noqa: E402  the path is set above
from fuzz_bus import Peer  # noqa: E402  as above
from fuzz_iproto import Iproto  # noqa: E402  as above
from fuzz_resp import Resp  # noqa: E402  as above
from fuzz_stranger import Heard, Stranger, Tape  # noqa: E402  as above

TALK_INPUTS = 400
HANG_S = 120


def talk(seed: int, place: Path, is_watched: bool) -> tuple[int, float, str]:
    """One talk; its inputs, its longest turn (s of CPU) and what was said before that.

    Raises what the node raises. `is_watched`: look at all tables after each turn.
    """
    rng = Random(seed)
    place.mkdir()
    box = FuzzBox(place, rng)
    box.is_watched = is_watched
    try:
        return said(box, rng), box.longest_s, box.where
    finally:
        box.free()


def said(box: FuzzBox, rng: Random) -> int:
    """Let all actors say something in turn; how much they said."""
    tape = Tape()
    actors = [
        Resp(box, rng),
        Resp(box, rng),
        Iproto(box, rng),
        *(Heard(box, rng, i, tape) for i in range(3)),
        Stranger(box, rng, tape),
    ]
    weights = [rng.choice((1, 1, 4)) for _ in actors]
    inputs = 0
    while inputs < TALK_INPUTS and not box.server.stop_requested:
        roll = rng.random()
        if roll < 0.02:
            rng.choice(actors).leave()
        elif roll < 0.2:
            box.pass_ms(rng.choice((1, 100, 500, 1000, 6000, 40_000)))
            for one in actors:
                one.hear() if isinstance(one, Peer) else one.drain()
        elif roll < 0.24:
            box.look()
        else:
            inputs += rng.choices(actors, weights)[0].act()
    for one in actors:
        one.leave()
    box.end()
    return inputs


class Judge(logging.Handler):
    """Takes internal errors out of the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


def judged(seed: int, is_watched: bool) -> tuple[str, int, float, str]:
    """A talk and what was wrong with it, empty when nothing was."""
    log = logging.getLogger("tuque")
    judge = Judge()
    log.handlers[:] = [judge]
    log.propagate = False
    root = Path(tempfile.mkdtemp(prefix="fuzz"))
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    try:
        inputs, longest_s, where = talk(seed, root / "n", is_watched)
    except Exception:
        return "".join(judge.found) + traceback.format_exc(), 0, 0.0, ""
    finally:
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(root, ignore_errors=True)
    wrong = [one for one in judge.found if "internal error" in one]
    return "".join(wrong), inputs, longest_s, where


def main() -> int:
    """Run talks; 1 when something was wrong in one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    parser.add_argument("--seed", type=int, default=-1, help="of the first talk; else it is new")
    parser.add_argument("--only", type=int, default=-1, help="the seed of one talk to run")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    args = parser.parse_args()
    first = args.seed if args.seed >= 0 else secrets.randbelow(1 << 40)
    if args.only >= 0:
        first = args.only
    print(f"first seed {first}", flush=True)
    begin = time.monotonic()
    done = failed = 0
    slowest = (0.0, 0, "")
    seed = first
    while True:
        wrong, inputs, longest_s, where = judged(seed, args.only >= 0)
        done += inputs
        slowest = max(slowest, (longest_s, seed, where))
        if wrong:
            failed += 1
            print(f"seed {seed} failed: python fuzz/talk.py --only {seed}\n{wrong}", flush=True)
        spent = time.monotonic() - begin
        if args.only >= 0 or (wrong and not args.keep_going):
            break
        if (args.seconds and spent > args.seconds) or (not args.seconds and done >= args.inputs):
            break
        seed += 1
    talks = seed - first + 1
    print(f"{done} inputs in {talks} talks from seed {first}, {spent:.0f} s, {failed} failed")
    print(f"longest turn {slowest[0] * 1000:.0f} ms of CPU, seed {slowest[1]}: {slowest[2][:300]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
