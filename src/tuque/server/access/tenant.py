"""Names and quotas of a tenant's users (SPEC N10, N11).

Their names become full names, jobs of others are unknown jobs to them, and their quotas hold.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.leases.leases import make_room
from tuque.core.model.job import BODYLESS, Job
from tuque.core.model.job_id import ID_BYTES, is_job_id, is_marked, of_url
from tuque.core.model.stats import Owner
from tuque.core.node.node import Node
from tuque.core.node.queue import QUEUE_BYTES
from tuque.core.node.tables import bare_size, headers_bytes, held_by, review_bare
from tuque.core.tables.leases import GROUPS_MAX
from tuque.core.tables.staged import FAIR, share_of
from tuque.server.state.server import Server
from tuque.server.users.tenants import Tenant
from tuque.server.users.users import Account
from tuque.wire.commands.arguments import ArgError
from tuque.wire.commands.commands import BEFORE_VALUES, Unit
from tuque.wire.commands.rows import BODIES

IDS_MAX: Final = 1_100  # words looked at here; longer commands look at each id as they go
TAG_AT: Final = 27  # the proof of an id that a node of the cluster made it (G6.5)
TAG_END: Final = 35
NO_TAG: Final = b"!!!!!!!!"
MANY_JOBS: Final = (
    b"QUOTA tenant '%s' has %d jobs at this node, and may have %d: let some end, or ask for more"
)
MORE_JOBS: Final = (
    b"QUOTA tenant '%s' has %d jobs at this node, and may have %d, not %d more: let some end, or "
    b"ask for more"
)
MORE_BYTES: Final = (
    b"QUOTA tenant '%s' has jobs of %d bytes at this node, and may have %d, not %d more: let some "
    b"end, or ask for more"
)
OTHERS_JOBS: Final = b"QUOTA the tenant of a queue that is subscribed may have no more jobs here"
MANY_BYTES: Final = (
    b"QUOTA tenant '%s' has jobs of %d bytes at this node, and may have %d: "
    b"let some end, or ask for more"
)
MANY_ADDS: Final = b"QUOTA tenant '%s' adds %d jobs a second at most: try again in %d ms"
MANY_GROUPS: Final = (
    b"QUOTA tenant '%s' has %d groups of leases, a quarter of what others leave: "
    b"LEASE RELEASE those that are not used"
)
MANY_QUEUES: Final = (
    b"QUOTA tenant '%s' has queues of %d bytes without their jobs, and may have %d, a quarter of "
    b"maxmemory: use fewer names"
)
NOTHING: Final = Owner(b"")  # of a tenant without queues
MANY_NAMES: Final = (
    b"OOM clients wait for new queues of %d bytes, and may have %d, not %d more: wait for fewer "
    b"names, or raise maxmemory"
)
MANY_OWN_NAMES: Final = (
    b"QUOTA tenant '%s' waits for new queues of %d bytes, and may have %d, a quarter of what "
    b"others leave, not %d more: wait for fewer names"
)
NO_CONNECTIONS: Final = (
    b"QUOTA tenant '%s' has %d connections to this node, a quarter of what others leave, and few "
    b"are free: close some"
)
MANY_CONNECTIONS: Final = (
    b"QUOTA tenant '%s' has %d connections to this node, as many as it may: close some, "
    b"or ask for more"
)


def put_prefix(s: Server, account: Account, unit: Unit, args: list[bytes]) -> None:
    """[N10] Make the command one on full names (N10.2), and foreign ids unknown (N10.3)."""
    if unit.simple_words >= len(args):
        at = unit.queue_at[0]
        if at < len(args) and unit.names_at == 0:
            args[at] = account.full(args[at])
            return
    elif len(args) == 2 and unit.jobs_from == 1:
        job = s.n.jobs.get(args[1])
        if job is not None and job.flags & BODYLESS == 0 and account.is_own(job.queue):
            return
    unit.put_prefix(account.prefix, args)
    if unit.jobs_from > 0 and len(args) <= IDS_MAX:
        if unit.is_one_job:
            hide_id(s, account, args, unit.jobs_from)
        else:
            hide_ids(s, account, args, unit.jobs_from)


def hide_ids(s: Server, account: Account, args: list[bytes], first: i64) -> None:
    """[N10] Make the ids of others' jobs unknown ones, among the words from `first` on (N10.3)."""
    i = first
    while i < len(args):
        size: i64 = len(args[i])
        if size >= ID_BYTES:
            hide_id(s, account, args, i)
        elif 4 <= size <= 6 and args[i].upper() in BEFORE_VALUES:
            i += 1
        i += 1


def hide_id(s: Server, account: Account, args: list[bytes], at: i64) -> None:
    """The same for one word."""
    if at >= len(args):
        return
    id = of_url(args[at])
    if not is_job_id(id):
        return
    job = s.n.jobs.get(id)
    if job is not None and job.flags & BODYLESS == 0:
        is_own = account.is_own(job.queue)
    else:
        is_own = is_marked(id, account.tenant)
    if not is_own:
        args[at] = id[:TAG_AT] + NO_TAG + id[TAG_END:]


def over_quota(s: Server, account: Account, unit: Unit, args: list[bytes]) -> bytes | None:
    """[N11] Why the tenant may not add what the command has; None: it may (N11.2)."""
    if unit.row == "PUBLISH":
        return None  # what is staged counts already
    if len(unit.queue_at) == 1:
        at = unit.queue_at[0]
        q = s.n.queues.get(args[at]) if at < len(args) else None
        if q is None or q.policy is not None:
            refused = over_queues(s, account, args[at : at + 1])
            if refused is not None:
                return refused
    body: i64 = BODIES.get(unit.row, len(args) - 1)
    return refusal(s, account, 1, 0 if body >= len(args) else len(args[body]), True)


def refusal(s: Server, account: Account, count: i64, size: i64, is_add: bool) -> bytes | None:
    """Why the tenant may not have so many more jobs, of so many bytes (N11.2, N11.3)."""
    tenant = account.home
    if tenant is None:
        return None
    refused = None
    if tenant.jobs > 0 or tenant.bytes > 0:
        refused = over_owned(s, tenant, count, size)
    if refused is None and is_add:
        wait_ms = tenant.wait_ms(s.n.now_ms)
        if wait_ms > 0:
            refused = MANY_ADDS % (tenant.name, int(tenant.adds), int(wait_ms))
    if refused is not None:
        tenant.refused += 1
    return refused


def of_topic(s: Server, account: Account, counts: dict[bytes, int], size: i64) -> bytes | None:
    """[T62] Why so many jobs, of so many bytes each, may not come to queues of these tenants, and
    are not counted; None: they may (T62.8).
    """
    home = account.home
    if home is None:
        return None
    refused = None
    total: i64 = 0
    for name, count in counts.items():
        total += count
        tenant = s.acl.tenants.get(name)
        over = None if tenant is None else over_owned(s, tenant, count, size * count)
        if over is not None and (refused is None or tenant is home):
            refused = over if tenant is home else OTHERS_JOBS
    if refused is None:
        wait_ms = home.wait_ms(s.n.now_ms, max(total, 1))
        if wait_ms > 0:
            refused = MANY_ADDS % (home.name, int(home.adds), int(wait_ms))
    if refused is not None:
        home.refused += 1
    return refused


def over_owned(s: Server, tenant: Tenant, count: i64, size: i64) -> bytes | None:
    """Why it may not have these beside what it has."""
    jobs, held = held_by(s.n, tenant.name)
    if tenant.jobs > 0 and jobs + count > tenant.jobs:
        if count > 1:
            return MORE_JOBS % (tenant.name, int(jobs), int(tenant.jobs), int(count))
        return MANY_JOBS % (tenant.name, int(jobs), int(tenant.jobs))
    if tenant.bytes > 0 and held + size > tenant.bytes:
        if count > 1:
            return MORE_BYTES % (tenant.name, int(held), int(tenant.bytes), int(size))
        return MANY_BYTES % (tenant.name, int(held), int(tenant.bytes))
    return None


def check_growth(
    s: Server,
    account: Account | None,
    job: Job | None,
    body: bytes | None,
    headers: bytes | None = None,
) -> None:
    """[N11] Raise ArgError if the tenant may not have that body and these headers in the place of
    the job's (N11.2).

    `job`: None if it is at other nodes.
    """
    tenant = None if account is None else account.home
    if tenant is None or tenant.bytes == 0:
        return
    more: i64 = 0
    if body is not None:
        more += len(body) - (0 if job is None else len(job.body))
    if headers is not None:
        more += len(headers) - (0 if job is None else headers_bytes(s.n, job.id))
    held: i64 = held_by(s.n, tenant.name)[1]
    if more > 0 and held + more > tenant.bytes:
        tenant.refused += 1
        raise ArgError(MANY_BYTES % (tenant.name, int(held), int(tenant.bytes)))


def owner_of(n: Node, tenant: bytes) -> Owner:
    """What the tenant's queues hold."""
    return n.book.owners.get(tenant, NOTHING)


def is_full(s: Server, tenant: bytes) -> bool:
    """[N11] Whether the tenant's tubes take no task (N11.9)."""
    most: i64 = s.n.limits.memory_bytes // FAIR
    owner = owner_of(s.n, tenant)
    return 0 < most <= owner.queue_bytes + owner.tube_bytes


def check_queues(s: Server, account: Account | None, names: list[bytes]) -> None:
    """[N11] Raise ArgError if the tenant may not make those of these queues that are missing
    (N11.9)."""
    refused = None if account is None else over_queues(s, account, names)
    if refused is not None:
        raise ArgError(refused)


def over_queues(s: Server, account: Account, names: list[bytes]) -> bytes | None:
    """[N11] Why the tenant may not make those of these queues that are missing (N11.9)."""
    most: i64 = s.n.limits.memory_bytes // FAIR
    if len(account.prefix) == 0 or most == 0:
        return None
    more: i64 = 0
    for name in names:
        if name not in s.n.queues:
            more += QUEUE_BYTES + 4 * len(name)
        elif s.n.queues[name].policy is not None:
            more += 1  # it may get new keys
    owner = owner_of(s.n, account.tenant)
    held = owner.queue_bytes + owner.tube_bytes
    if more == 0 or held + more <= most:
        return None
    if account.home is not None:
        account.home.refused += 1
    return MANY_QUEUES % (account.tenant, int(held), int(most))


def check_names(s: Server, account: Account | None, names: list[bytes]) -> None:
    """[M5] Raise ArgError if no GETJOB may make those of these queues that are missing (M5.4,
    N11.9)."""
    n = s.n
    more: i64 = 0
    for name in names:
        if name not in n.queues:
            more += bare_size(name)
    if more == 0:
        return
    tenant = b"" if account is None or len(account.prefix) == 0 else account.tenant
    if over_bare(n, tenant, more) is not None:
        review_bare(n)
    refused = over_bare(n, tenant, more)
    if refused is not None:
        raise ArgError(refused)


def over_bare(n: Node, tenant: bytes, more: i64) -> bytes | None:
    """[M5] Why waits make no queues of so many bytes (M5.4); `tenant`: empty if of none."""
    most = n.limits.bare_bytes
    if n.bare_bytes + more > most:
        return MANY_NAMES % (int(n.bare_bytes), int(most), int(more))
    if len(tenant) == 0:
        return None
    held = owner_of(n, tenant).bare_bytes
    share = share_of(most, n.bare_bytes, held)
    if held + more <= share:
        return None
    return MANY_OWN_NAMES % (tenant, int(held), int(share), int(more))


def full_of_groups(s: Server, account: Account) -> bytes | None:
    """[N11] Why the tenant may not open another group of leases; None: it may (N11.8).

    A group of the tenant that is not used makes room (Y1.4).
    """
    groups = s.n.leases.groups
    count: i64 = sum([1 for name in groups if name.startswith(account.prefix)])
    if count < share_of(GROUPS_MAX, len(groups), count) or make_room(s.n, account.prefix):
        return None
    return MANY_GROUPS % (account.tenant, int(count))


def connections(s: Server) -> dict[bytes, int]:
    """The connections of each tenant's users to this node, on all doors."""
    found: dict[bytes, int] = {}
    for c in s.clients.values():
        if c.is_tenant() and c.user is not None:
            found[c.user.tenant] = found.get(c.user.tenant, 0) + 1
    for w in s.wired.values():
        if w.is_tenant() and w.user.account is not None:
            name = w.user.account.tenant
            found[name] = found.get(name, 0) + 1
    return found


def no_room(s: Server, before: Account | None, account: Account) -> bytes | None:
    """[N11] Why a connection of `before` may not become one of that user; None: it may (N11.4)."""
    tenant = account.home
    if tenant is None or (before is not None and before.home is tenant):
        return None  # of none, or it counts already
    most = tenant.connections
    used: i64 = len(s.clients) + len(s.wired)
    is_tight = used * FAIR > s.cfg.maxclients * (FAIR - 1)
    if most == 0 and not is_tight:
        return None
    count: i64 = connections(s).get(tenant.name, 0)
    is_over = 0 < most <= count
    if not is_over and (not is_tight or count < share_of(s.cfg.maxclients, used, count)):
        return None
    tenant.refused += 1
    return (MANY_CONNECTIONS if is_over else NO_CONNECTIONS) % (tenant.name, int(count))
