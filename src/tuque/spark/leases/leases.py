"""What a stream leases on its nodes: offsets, admission, acknowledgement, heartbeats.

The driver's side of `mode=lease`, without Spark: an offset has each node's last batch by node id,
`{"<node>": [epoch, seq], ...}`. A batch is acknowledged when the offset that ends with it is the
start of the next one, since then Spark's commit log has it.

An unreachable node keeps its place in the offset, and the others go on. If a node has lost the
group (its memory, or the lease), it is opened again there: its jobs may come twice, none is lost.
parts.py reads the rows of a batch.
"""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tuque.client.commands.leases import LeaseInfo
from tuque.client.sync import Client
from tuque.client.url import Address
from tuque.errors import Acked, Error, Fenced, Leaving, NoBatch, NoGroup, ReplyError
from tuque.spark.errors import SourceError
from tuque.spark.leases.nodes import IDLE_S, PAUSE_S, AwayError, Node, of_tube
from tuque.spark.options.source import SourceOptions

Offset = dict[str, list[int]]
OTHER_QUEUES: Final = (
    "the group was opened with the queues {queues}; with ackOn=commit they cannot be changed, "
    "since batches may not be acknowledged yet. Run the query once with ackOn=next, then with both"
)
KNOWN: Final = (
    "group {group!r} of {node} was read by a query with another checkpoint, and this one has none "
    "yet. Another query takes another group. If the checkpoint is lost, takeover=true continues "
    "with what was not acknowledged; a file sink (Parquet, Delta) then needs a new path, since it "
    "leaves out batches whose numbers it has already"
)

# takeover=true does not help: the numbers of its next batches are used up. A sink that keeps them
# leaves the batches out, and a file sink's log in a new path would begin in the middle.
BEHIND: Final = (
    "the checkpoint is older than what group {group!r} has done: {why}. A backup of the checkpoint "
    "was put back, or a copy of it has run. Use the newest one; if that is lost, delete this one, "
    "too: without a checkpoint, takeover=true continues with what was not acknowledged; a file "
    "sink (Parquet, Delta) then needs a new path, since it leaves out batches whose numbers it has "
    "already"
)


class Place:
    """The group on one node."""

    def __init__(self, id: str, node: Node) -> None:
        self.id = id
        self.node = node
        self.epoch = 0  # this process's; 0: not opened yet
        self.logged = 0  # the offset's epoch; 0: none
        self.seq = 0  # the last batch in this process's epoch
        self.acked: list[int] = []  # last acknowledged
        self.left: int | None = None  # jobs that Trigger.AvailableNow may still take
        self.leased: dict[tuple[int, int], int] = {}  # of these, by epoch and batch
        self.has_beats = False
        self.is_checked = False  # its group's queues match the options


class Leases:
    """All places of a group, in the driver process that plans the query."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.owner = uuid.uuid4().hex
        self.places: dict[str, Place] = {}
        self.unmet = [self._node(address) for address in options.broker.seeds]
        self.is_limited = False  # Trigger.AvailableNow: to what was there at its start
        self.has_others = False  # the cluster has nodes that are not leased from
        self._is_whole = options.is_whole_cluster
        self._is_new = False  # the query started without a checkpoint
        self.begun: dict[tuple[str, int, int], bool] = {}  # batches tried; True: set aside
        self._asked_s = 0.0  # when to ask the nodes for other nodes again
        self._since: dict[tuple[str, int, int], float] = {}  # when a batch was seen first

    # ---- nodes

    def _node(self, address: Address) -> Node:
        return Node(self.options.broker, address, self.options.retry_timeout_ms)

    def meet(self) -> None:
        """Learns the ids of nodes that were down, and with nodes=cluster of new ones."""
        for node in list(self.unmet):
            with suppress(AwayError):
                self._add(node.try_now(lambda c: c.hello()).id, node)
                self.unmet = [other for other in self.unmet if other is not node]
        is_alone = len(self.places) < 2 and not self._is_whole  # one node asks others by itself
        if is_alone or time.monotonic() < self._asked_s:
            return
        for place in list(self.places.values()):
            try:
                others = place.node.try_now(lambda c: c.hello()).nodes
            except AwayError:
                continue
            if self._is_whole:
                for other in (node for node in others if node.host):
                    self._add(other.id, self._node(Address(other.host, other.port)))
            self.has_others = any(other.id not in self.places for other in others)
            self._asked_s = time.monotonic() + self.options.heartbeat_ms / 1000
            return

    def _add(self, id: str, node: Node) -> None:
        if id not in self.places:
            self.places[id] = Place(id, node)
            self.unmet = [other for other in self.unmet if other.address != node.address]

    def _until_heard(self, ask: Callable[[], bool]) -> None:
        """Asks until some node replies; SourceError when none does within retryTimeout."""
        until_s = time.monotonic() + self.options.retry_timeout_ms / 1000
        while True:
            self.meet()
            if ask():
                return
            if time.monotonic() > until_s:
                raise SourceError(f"no node answers for retryTimeout: {self._why_away()}")
            time.sleep(PAUSE_S)

    def _why_away(self) -> str:
        nodes = [*self.unmet, *(place.node for place in self.places.values())]
        return "; ".join(f"{node.address}: {node.why_away}" for node in nodes if node.why_away)

    def place_of(self, id: str) -> Place | None:
        """The place of a node in an offset; None: it is not among the given nodes."""
        found: list[Place] = []

        def ask() -> bool:
            if id in self.places:
                found.append(self.places[id])
            return bool(found) or not self.unmet

        self._until_heard(ask)
        return found[0] if found else None

    # ---- the next batch

    def limit_to_now(self) -> None:
        """Sets the limit: jobs queued now, and jobs that the group has leased and not logged.

        Includes and leases from all nodes of the cluster, unless the options name nodes.
        """
        self.is_limited = True
        self._is_whole = self._is_whole or self.options.may_widen

        def ask() -> bool:
            heard = False
            for place in self.places.values():
                with suppress(AwayError):
                    self._count(place)
                    heard = True
            return heard

        self._until_heard(ask)

    def _count(self, place: Place) -> None:
        queues, group = self.options.queues, self.options.group
        left = place.node.try_now(lambda c: sum(c.qlen(name) for name in queues))
        with suppress(ReplyError):  # no such group yet
            found = place.node.try_now(lambda c: c.lease_info(group))
            place.leased = {(found.epoch, batch.seq): batch.jobs for batch in found.batches}
            left += sum(place.leased.values())
        place.left = left

    def latest(self, start: Offset, most: int) -> Offset:
        """Acknowledges up to `start`, then leases up to `most` jobs; `start` if there are none.

        SourceError if all nodes stay unreachable, or another query has the group.
        """
        check(start)
        self._is_new = self._is_new or not start
        end = {id: at for id, at in start.items() if id in self.places or self.unmet}

        def ask() -> bool:
            places = [place for place in self.places.values() if self._take_up(place, start)]
            self._take(places, most, end)
            return any(not place.node.why_away for place in places)

        self._until_heard(ask)
        found = dict(sorted(end.items()))
        if found != start:
            return found
        if not self.is_limited:
            time.sleep(IDLE_S)
        return start

    def _take(self, places: list[Place], most: int, end: Offset) -> None:
        """Leases a batch on each node that has jobs, and adds it to `end`.

        The last node may take all that is left, if there are nodes that are not leased from: it
        asks them for what it lacks (F1.1). Otherwise nodes would ask each other.
        """
        lefts = [self._left(place, most) for place in places]
        planned = lefts
        if len(places) > 1:
            queued = [
                min(left, self._queued(place)) for place, left in zip(places, lefts, strict=True)
            ]
            planned = shares(queued, most)
        total = sum(planned)
        asked = sorted(zip(planned, lefts, places, strict=True), key=lambda item: -item[0])
        for i, (count, left, place) in enumerate(asked):
            may_take = min(count, most)
            if self.has_others and i == len(asked) - 1:
                may_take = min(left, most)
            if may_take > 0:
                share = max(1, self.options.max_bytes * count // total if total else 0)
                taken = self._next(place, may_take, share, len(places))
                most -= taken
                if taken:
                    end[place.id] = [place.epoch, place.seq + 1]

    def _left(self, place: Place, most: int) -> int:
        return min(most, place.left or 0) if self.is_limited else most

    def _take_up(self, place: Place, start: Offset) -> bool:
        """Acknowledges the node's part of the offset, opens the group; False if it is down."""
        at = start.get(place.id, [0, 0])
        epoch, seq = at
        place.logged = epoch
        for key in [key for key in place.leased if key[0] == epoch and key[1] <= seq]:
            # Jobs that Spark has logged, and may repeat, are not new ones.
            place.left = (place.left or 0) - place.leased.pop(key)
        try:
            if not place.epoch and not epoch:
                self._refuse_known(place)
                self._open(place, self.owner)
            elif place.epoch in (0, epoch):
                self._follow(place, epoch)
                place.seq = seq
                if self.options.is_acked_on_next:
                    self._ack(place, at)
                self._check_queues(place, epoch)
        except AwayError:
            return False
        return True

    def _refuse_known(self, place: Place) -> None:
        """SourceError if a query without a checkpoint finds its group in use by another one.

        Jobs leased by a driver that died before it logged its first offset were never read.
        """
        if self.options.takes_over or not self._is_new:
            return
        try:
            found = place.node.try_now(lambda c: c.lease_info(self.options.group))
        except NoGroup:
            return
        is_read = any(batch.attempts for batch in found.batches)
        if found.acked_seq or found.last_seq > 1 or is_read:
            raise SourceError(KNOWN.format(group=found.group, node=place.node.address))

    def _check_queues(self, place: Place, epoch: int) -> None:
        """Reopens the group if it was opened with other queues than the options have.

        Everything that Spark has logged is acknowledged by then. Later leases are requeued.
        """
        if place.is_checked or place.epoch != epoch:
            return
        found = place.node.try_now(lambda c: c.lease_info(self.options.group))
        if found.epoch == epoch and sorted(found.queues) != sorted(self.options.queues):
            if not self.options.is_acked_on_next:
                raise SourceError(OTHER_QUEUES.format(queues=", ".join(found.queues)))
            self._open(place, heir(epoch))
        place.is_checked = True

    def _ack(self, place: Place, at: list[int]) -> None:
        """Acknowledges the batches up to there, once."""
        if place.acked == at or not at[0]:
            return
        epoch, seq = at
        self._sure(place, lambda c: c.lease_commit(self.options.group, epoch, seq))
        place.acked = at

    def _sure(self, place: Place, call: Callable[[Client], int]) -> int | None:
        """The reply; None: the node has lost our batches, and the group was opened again.

        SourceError FENCED if another query has the group.
        """
        try:
            return place.node.try_now(call)
        except (NoGroup, NoBatch):
            pass
        except Fenced as err:
            found = place.node.try_now(lambda c: c.lease_info(self.options.group))
            if found.owner != heir(place.logged):
                raise fenced(self.options.group, err) from err
        self._open(place, self._heir(place))
        return None

    def _heir(self, place: Place) -> str:
        return heir(place.logged) if place.logged else self.owner

    def _open(self, place: Place, owner: str) -> None:
        options = self.options
        epoch = place.node.try_now(lambda c: c.lease_open(options.group, owner, *options.queues))
        place.epoch, place.seq = epoch, 0
        self._beat(place)

    def _queued(self, place: Place) -> int:
        """Jobs for the node's next batch; if that exists, its jobs."""
        group = self.options.group
        try:
            found = place.node.try_now(lambda c: c.lease_info(group))
            if found.epoch != place.epoch:
                self._sure(place, lambda c: c.lease_touch(group, place.epoch))
                return 0
        except NoGroup:
            self._open(place, self._heir(place))
            return 0
        except AwayError:
            return 0
        if found.tubes:
            raise SourceError(of_tube(f"{found.tubes[0]!r} is a tube"))
        ready = [batch.jobs for batch in found.batches if batch.seq == place.seq + 1]
        return ready[0] if ready else found.queued

    def _info(self, place: Place) -> LeaseInfo | None:
        try:
            return place.node.try_now(lambda c: c.lease_info(self.options.group))
        except (ReplyError, AwayError):
            return None

    def _next(self, place: Place, count: int, max_bytes: int, nodes: int) -> int:
        """Leases the node's next batch; returns its size, 0 if there are no jobs or it is down."""
        options = self.options
        parts = max(1, options.partitions // nodes)

        def ask(client: Client) -> int:
            return client.lease_next(
                options.group,
                place.epoch,
                place.seq + 1,
                count,
                ttl_ms=options.lease_timeout_ms,
                max_bytes=max_bytes,
                parts=parts,
            )

        try:
            try:
                taken = self._sure(place, ask)
            except Acked as err:  # the batch after the checkpoint's
                raise SourceError(BEHIND.format(group=options.group, why=err)) from err
            if taken is None:
                taken = place.node.try_now(ask)
        except (AwayError, Leaving):
            return 0
        if place.left is not None and taken:
            place.leased.pop((place.epoch, place.seq + 1), None)
            place.left -= taken
        return taken

    def acknowledge(self, end: Offset) -> None:
        """With ackOn=commit: Spark reports that everything up to there is done."""
        if self.options.is_acked_on_next:
            return
        for id, at in end.items():
            place = self.places.get(id)
            if place is not None and place.epoch == at[0]:
                with suppress(AwayError):  # the next call acknowledges this, too
                    self._ack(place, at)

    # ---- heartbeats and reports

    def follow(self, id: str, epoch: int) -> Place | None:
        """The node's place, leased under that epoch from now on; None: not a given node."""
        place = self.place_of(id)
        if place is not None and place.epoch in (0, epoch):
            self._follow(place, epoch)
        return place

    def _follow(self, place: Place, epoch: int) -> None:
        place.epoch = epoch
        self._beat(place)

    def _beat(self, place: Place) -> None:
        if not place.has_beats:
            place.has_beats = True
            known = (weakref.ref(self), place, self._node(place.node.address), self.options)
            name = f"heartbeat {self.options.group} {place.node.address}"
            threading.Thread(target=beats, args=known, name=name, daemon=True).start()

    def backlog(self) -> dict[str, int] | None:
        """For the progress of the query; None if no node has the group."""
        asked = {place.id: self._info(place) for place in self.places.values()}
        infos = [found for found in asked.values() if found]
        if not infos:
            return None
        now, known, self._since = time.monotonic(), self._since, {}
        for id, found in asked.items():
            for batch in found.batches if found else ():
                key = (id, found.epoch if found else 0, batch.seq)
                self._since[key] = known.get(key, now)
        held = [batch for found in infos for batch in found.batches]
        return {
            "backlog": sum(found.queued for found in infos),
            "leased": sum(batch.jobs for batch in held),
            "leases": len(held),
            "oldest_lease_ms": int((now - min(self._since.values(), default=now)) * 1000),
            "failed_attempts": sum(max(batch.attempts - 1, 0) for batch in held),
            "oldest_ms": max(found.oldest_ms for found in infos),
            "nodes": len(infos),
            "nodes_unreachable": len(self.unmet) + len(self.places) - len(infos),
        }


def beats(leases: weakref.ref[Leases], place: Place, node: Node, options: SourceOptions) -> None:
    """Renews the lease on one node until the query, or its driver process, is gone."""
    while leases() is not None:
        time.sleep(options.heartbeat_ms / 1000)
        with suppress(Error, AwayError):  # the query itself gets the reason
            node.try_now(lambda c: c.lease_touch(options.group, place.epoch))
    node.close()


def fenced(group: str, err: Fenced) -> SourceError:
    """The error of a query that lost its group."""
    return SourceError(
        f"FENCED: group {group!r} has been opened again: it is for one read of one running query. "
        "A second start() of a stream, one without its checkpoint, and a stream that one query "
        "reads twice (a join or a union with itself) are two: give each a group of its own, with "
        f"queues of its own, or write the stream to a table and read that ({err})"
    )


def heir(epoch: int) -> str:
    """The owner name after an epoch that the node forgot: the same again after the driver restarts,
    which finds the old epoch in its checkpoint.
    """
    return f"after {epoch}"


def shares(queued: Sequence[int], most: int) -> list[int]:
    """Splits `most` among the nodes' jobs: as evenly as possible, without waste."""
    found = [0] * len(queued)
    open_ends = sorted(range(len(queued)), key=lambda i: queued[i])
    while open_ends:
        i = open_ends.pop(0)
        found[i] = min(queued[i], most // (len(open_ends) + 1))
        most -= found[i]
    return found


def check(offset: Offset) -> None:
    """Raises SourceError if the offset is not one of ours."""
    for id, at in offset.items():
        if not (isinstance(at, list) and len(at) == 2 and all(isinstance(n, int) for n in at)):
            raise SourceError(
                f"the checkpoint has {id}: {at!r}, which is no node with epoch and batch: "
                "it was written by another source, or with another mode"
            )
