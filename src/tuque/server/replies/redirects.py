"""Redirects for clients that ask for a tube at a node that does not lead it (SPEC T17, T19).

Every command on a tube, or on one of its tasks, passes here before it does anything.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.errors import STRANGE_TASK
from tuque.core.model.job_id import is_job_id
from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.errors import TUBE_HOME
from tuque.server.replies.errors import READ_ONLY, core_words, iproto_words, resp_words
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.tubes.log.leader import needs_home, refusal_of, unheard_refusal
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import ArgError
from tuque.wire.proto.iproto import E_READ_ONLY, IprotoError

HOME: Final = TUBE_HOME.encode()
NO_SUCH: Final = b"NOTUBE Tube '%s' not found"


def tube_named(n: Node, t: Tubes, name: bytes) -> Tube:
    """The tube of that name; `-NOTUBE` if there is none (T15.5)."""
    tube = t.by_name.get(name)
    if tube is None:
        unheard = unheard_refusal(n, t)
        raise ArgError(NO_SUCH % name if unheard is None else core_words(unheard))
    return tube


def join_address(host: bytes, port: int) -> bytes:
    """`host:port`, an IPv6 address in brackets."""
    return b"[%s]:%d" % (host, port) if b":" in host else b"%s:%d" % (host, port)


def address_of(s: Server, node_id: bytes, c: Client | None = None) -> bytes:
    """Where RESP clients find the node; `:0` if unknown.

    For this node: the announced address, else the one that the client `c` connected to.
    """
    if node_id == s.n.node_id:
        host = s.cfg.cluster_announce_ip if c is None else own_host(s, c)
        return join_address(host.encode(), int(s.members.port))
    one = s.members.by_id.get(node_id)
    return b":0" if one is None else join_address(one.host.encode(), int(one.port))


def own_host(s: Server, c: Client) -> str:
    """[C5] Where the client finds this node: `cluster-announce-ip`, else what it connected to.

    Empty for a unix socket (C5.1).
    """
    if s.cfg.cluster_announce_ip:
        return s.cfg.cluster_announce_ip
    try:
        name = c.sock.getsockname()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""


def iproto_address_of(s: Server, t: Tubes, node_id: bytes) -> bytes:
    """[T17] Where IPROTO clients find the node; port 0 when it has none (T17.4)."""
    one = s.members.by_id.get(node_id)
    if one is None:
        return b":0"
    return join_address(one.host.encode(), int(t.ports.get(one.slot, 0)))


def refusal_text(s: Server, error: TubeError) -> bytes:
    """[T15.5] The refusal with the first word for RESP clients."""
    if isinstance(error, HomeError):
        return HOME % (address_of(s, error.node_id), error.tube)  # T17.3
    return resp_words(error)


def iproto_refusal(s: Server, t: Tubes, error: TubeError) -> IprotoError:
    """[T13] The refusal for IPROTO: a number, and a text without a first word (T17.4)."""
    if isinstance(error, HomeError):
        where = iproto_address_of(s, t, error.node_id)
        text = READ_ONLY + b": the leader of tube '%s' is %s" % (error.tube, where)
        return IprotoError(E_READ_ONLY, text)
    return iproto_words(error)


def check_queue(s: Server, name: bytes) -> None:
    """[T17] A queue that is a tube takes commands on its leader (T17.3). Raises TubeError."""
    n = s.n
    if n.policy is None or len(tubes_of(n).by_name) == 0:
        return
    q = n.queues.get(name)
    if q is not None and isinstance(q, Tube):
        needs_home(n, tubes_of(n), q)


def moved_text(s: Server, name: bytes) -> bytes:
    """[T20] The reply to clients that wait for a tube whose leader changes (T20.2)."""
    t = tubes_of(s.n)
    tube = t.by_name.get(name)
    if tube is None:
        return NO_SUCH % name
    return refusal_text(s, refusal_of(s.n, t, tube))


def moved_error(s: Server, name: bytes) -> IprotoError:
    """The same for an IPROTO call."""
    t = tubes_of(s.n)
    tube = t.by_name.get(name)
    if tube is None:
        return IprotoError(E_READ_ONLY, READ_ONLY)
    return iproto_refusal(s, t, refusal_of(s.n, t, tube))


def check_tasks(s: Server, args: list[bytes], first: i64, step: i64) -> None:
    """[T17] Tasks are changed and shown on the leader of their tube (T17.3). Raises TubeError."""
    n = s.n
    if n.policy is None:
        return
    t = tubes_of(n)
    if len(t.by_name) == 0:
        return
    seen = b""  # usually all are of one tube
    i = first
    while i < len(args):
        task = task_of_id(n, t, args[i])
        if task is not None and task.queue is not seen:
            seen = task.queue
            tube = t.by_name.get(seen)
            if tube is not None:
                needs_home(n, t, tube)
        i += step


def check_strange(s: Server, args: list[bytes], first: i64, step: i64) -> None:
    """[T17] Who does not know a task cannot say that it has ended: the leader can (T17.8).

    Raises TubeError for the id of a task that is unknown here, if another node may know it.
    """
    n = s.n
    if len(n.peers) == 1:
        return
    t = None if n.policy is None else tubes_of(n)
    is_parted = n.others & ~n.linked != 0
    if not is_parted and (t is None or len(t.by_name) == 0):
        return
    i = first
    while i < len(args):
        id = args[i]
        i += step
        if id in n.jobs or not is_job_id(id):
            continue
        tube = None if t is None else t.by_name.get(n.ids.tube_of(id))
        if t is not None and tube is not None:
            needs_home(n, t, tube)
        elif is_parted and n.ids.mark_in(id) > 0:
            raise TubeError(STRANGE_TASK, (id,))


def task_of_id(n: Node, t: Tubes, id: bytes) -> Task | None:
    """The task with that job id, here or as a copy."""
    job = n.jobs.get(id)
    if job is None:
        if len(t.copies_by_id) == 0:
            return None
        return t.copies_by_id.get(id)
    return job if isinstance(job, Task) else None
