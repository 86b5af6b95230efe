"""The table of users, for RESP and IPROTO: passwords, rights, patterns of queues (SPEC N1, N2)."""

import hashlib
import os
from typing import Final, final

from tuque.server.config.patterns import matches
from tuque.server.users.passwords import Guesses, Hasher, Secrets, Work
from tuque.server.users.tenants import Denials, Tenant
from tuque.wire.commands.commands import BY_NAME, CATEGORIES, UNITS, Unit

DEFAULT: Final = b"default"
SEEN_MAX: Final = 10_000  # queues whose answer is remembered
NAME_MAX: Final = 1_024  # bytes of a queue's name that patterns are compared with (N2.6)
ALL: Final = b"*"
TENANT: Final = b"tenant:"
QUOTA: Final = b"quota:"
MEANT: Final[dict[str, list[Unit]]] = {}  # of the names that there are

DIGEST_BYTES: Final = 8
DIGESTS: Final = 1 << 64


# ---- One user: secrets, units, patterns of queues (SPEC N1, N2)
#
# A connection keeps the account that it logged in as: a change of the user changes the account.


@final
class Account:
    """One user. It may do nothing at first, and is off."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.is_on = False
        self.secrets = Secrets()
        self.rules: list[str] = []  # of commands, in order: +unit, -@category
        self.patterns: list[bytes] = []  # of queues
        self.tenant = b""  # empty: none
        self.prefix = b""  # what names of the tenant's queues begin with
        self.quotas: dict[bytes, int] = {}  # by their words
        self.home: Tenant | None = None  # set by the table
        self.is_gone = False  # deleted
        self.granted: list[bool] = []  # by the code of the unit
        self.has_all = False  # every unit
        self.sees_all = False  # every queue
        self.is_full = False  # both: nothing needs a look
        self.seen: dict[bytes, bool] = {}
        self.sees_own = False  # every queue of its tenant
        self.fulls: dict[bytes, bytes] = {}  # full names, by the names that the user says
        self.heads: dict[bytes, bytes] = {}  # what replies of jobs begin with, by full names
        self.settle()

    def settle(self) -> None:
        """Work out what the rules and patterns mean."""
        self.granted = [unit.is_open for unit in UNITS]
        for rule in self.rules:
            self.apply(rule[1:], rule[0] == "+")
        self.prefix = self.tenant + b"/" if len(self.tenant) > 0 else b""
        if len(self.tenant) > 0:
            for unit in UNITS:
                if not unit.is_for_tenants:
                    self.granted[unit.code] = False  # N10.4
        self.has_all = all(self.granted)
        self.sees_all = ALL in self.patterns and len(self.tenant) == 0
        self.is_full = self.has_all and self.sees_all
        self.sees_own = ALL in self.patterns and len(self.tenant) > 0
        self.seen = {}
        self.fulls = {}
        self.heads = {}

    def apply(self, name: str, is_allowed: bool) -> None:
        """One rule."""
        for unit in meant(name):
            if not unit.is_open:
                self.granted[unit.code] = is_allowed

    def is_own(self, name: bytes) -> bool:
        """Whether the full name of a queue, group or worker is of the user's tenant."""
        return name.startswith(self.prefix)

    def full(self, name: bytes) -> bytes:
        """The full name of what the user calls so (N10.2)."""
        known = self.fulls.get(name)
        if known is not None:
            return known
        found = self.prefix + name
        if len(name) <= NAME_MAX:
            if len(self.fulls) >= SEEN_MAX:
                self.fulls = {}
            self.fulls[name] = found
        return found

    def head(self, queue: bytes) -> bytes:
        """What a delivered job begins with, as a Queue's `reply_head`; the full name is given."""
        known = self.heads.get(queue)
        if known is not None:
            return known
        name = self.bare(queue)
        found = b"*3\r\n$%d\r\n%s\r\n$40\r\n" % (len(name), name)
        if len(name) <= NAME_MAX:
            if len(self.heads) >= SEEN_MAX:
                self.heads = {}
            self.heads[queue] = found
        return found

    def bare(self, name: bytes) -> bytes:
        """The name as the user knows it: without the tenant (N10.2)."""
        if len(self.prefix) == 0 or not name.startswith(self.prefix):
            return name
        return name[len(self.prefix) :]

    def limits(self, unit: Unit) -> bool:
        """Whether a quota of the user's tenant may refuse the unit."""
        return unit.is_adding and self.home is not None

    def may_see(self, queue: bytes) -> bool:
        """Whether a pattern of the user matches the queue, given with its full name."""
        if self.sees_all:
            return True
        known = self.seen.get(queue)
        if known is not None:
            return known
        is_own = self.is_own(queue)
        if len(queue) > NAME_MAX + len(self.prefix):
            return is_own and self.sees_own
        found = False
        if is_own:
            text = self.bare(queue).decode("latin-1")
            for pattern in self.patterns:
                if matches(pattern.decode("latin-1"), text):
                    found = True
                    break
        if len(self.seen) >= SEEN_MAX:
            self.seen = {}
        self.seen[queue] = found
        return found

    def is_same(self, other: "Account") -> bool:
        """Whether the other one has the same rights and secrets."""
        if self.is_on != other.is_on or self.rules != other.rules:
            return False
        if self.tenant != other.tenant or self.quotas != other.quotas:
            return False
        return self.patterns == other.patterns and self.secrets.is_same(other.secrets)

    def copy(self) -> "Account":
        """The same user once more, for a change that may fail."""
        other = Account(self.name)
        other.is_on = self.is_on
        other.secrets = self.secrets.copy()
        other.rules = list(self.rules)
        other.patterns = list(self.patterns)
        other.tenant = self.tenant
        other.quotas = dict(self.quotas)
        other.settle()
        return other

    def become(self, other: "Account") -> bool:
        """Take over all of the other one, of the same tenant; whether it may do less now."""
        is_less = self.is_on and not other.is_on
        for code in range(len(UNITS)):
            if self.granted[code] and not other.granted[code]:
                is_less = True
        if ALL not in other.patterns:
            for pattern in self.patterns:
                if pattern not in other.patterns:
                    is_less = True
        self.is_on = other.is_on
        self.secrets = other.secrets
        self.rules = other.rules
        self.patterns = other.patterns
        self.quotas = other.quotas
        self.settle()
        return is_less

    def add_rule(self, rule: str) -> None:
        """Append a rule; an earlier one for the same means nothing any more."""
        if rule[1:] == "@all":
            self.rules = [rule]
        else:
            self.rules = [one for one in self.rules if one[1:] != rule[1:]] + [rule]

    def add_pattern(self, pattern: bytes) -> None:
        """Allow the queues of a pattern."""
        if pattern == ALL:
            self.patterns = []
        if pattern not in self.patterns and ALL not in self.patterns:
            self.patterns.append(pattern)


def meant(name: str) -> list[Unit]:
    """The units that a word after + or - means; none: it is unknown."""
    if name == "@all":
        return UNITS
    found = MEANT.get(name)
    if found is not None:
        return found
    if name.startswith("@"):
        if name[1:] not in CATEGORIES:
            return []
        found = [unit for unit in UNITS if name[1:] in unit.categories]
    elif name not in BY_NAME:
        return []
    else:
        found = [unit for unit in UNITS if unit.name == name or unit.name.startswith(name + "|")]
    MEANT[name] = found
    return found


def everything(name: bytes) -> Account:
    """A user who may do everything without a password: `default` in the beginning (N1.2)."""
    account = Account(name)
    account.is_on = True
    account.secrets.is_free = True
    account.rules = ["+@all"]
    account.patterns = [ALL]
    account.settle()
    return account


def digest_text(account: Account) -> bytes:
    """What the digest of the table counts: all but secrets (N7.4)."""
    rules = " ".join(account.rules).encode()
    head = b"%d%d" % (account.is_on, account.secrets.is_free)
    own = b" ".join([*sorted(account.patterns), *tenant_words(account)])
    return b"%s\n%s\n%s\n%s\n" % (account.name, head, rules, own)


def tenant_words(account: Account) -> list[bytes]:
    """The words of SETUSER that say whose user it is, and the quotas (N10, N11)."""
    if len(account.tenant) == 0:
        return []
    quotas = sorted(account.quotas.items())
    return [TENANT + account.tenant, *[b"%s%s=%d" % (QUOTA, *one) for one in quotas]]


# ---- All users, and what guards their log-ins


@final
class Acl:
    """All users by name, `default` among them, and what guards their log-ins."""

    def __init__(self) -> None:
        self.default = everything(DEFAULT)
        self.by_name: dict[bytes, Account] = {DEFAULT: self.default}
        self.key = os.urandom(32)  # of the digests of proved passwords
        self.hasher: Hasher | None = None  # none: the loop does the slow work itself
        self.guesses = Guesses()
        self.denials = Denials()
        self.waiting = 0  # log-ins in work
        self.path = ""  # of the users file; empty: none
        self.stamp = (0, 0, 0)  # of the file as read or written last
        self.look_ms = 0  # when to look at it again
        self.reading: Work | None = None  # of the changed file
        self.marks: dict[bytes, int] = {}  # of each user, summed up in the digest
        self.total = 0
        self.tenants: dict[bytes, Tenant] = {}
        self.quota_bytes: dict[bytes, int] = {}  # of those that have one; the core sees it
        self.is_guarded = False
        self.newcomer: Account | None = self.default
        self.mark(DEFAULT)
        self.settle()

    def settle(self) -> None:
        """After a change: whether anything must be checked, and who a new connection is."""
        free = self.default.is_on and self.default.secrets.needs_none()
        self.newcomer = self.default if free else None
        self.is_guarded = len(self.by_name) > 1 or not free or not self.default.is_full
        self.settle_tenants()

    def settle_tenants(self) -> None:
        """[N11] What each tenant may have, as its users say (N11.1)."""
        found: dict[bytes, Tenant] = {}
        for account in self.by_name.values():
            account.home = None
            if len(account.tenant) == 0:
                continue
            tenant = found.get(account.tenant)
            if tenant is None:
                tenant = self.tenants.get(account.tenant) or Tenant(account.tenant)
                tenant.begin()
                found[account.tenant] = tenant
            tenant.join(account.quotas)
            account.home = tenant
        self.tenants = found
        self.quota_bytes.clear()
        for tenant in found.values():
            if tenant.bytes > 0:
                self.quota_bytes[tenant.name] = int(tenant.bytes)

    def mark(self, name: bytes) -> None:
        """The user was made, changed or deleted: count it in the digest."""
        account = self.by_name.get(name)
        value = 0
        if account is not None:
            text = digest_text(account)
            value = int.from_bytes(hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest())
        self.total = (self.total - self.marks.pop(name, 0) + value) % DIGESTS
        if account is not None:
            self.marks[name] = value

    def digest(self) -> str:
        """[N7] The same for the same users and rights, whatever their passwords (N7.4)."""
        return f"{self.total:016x}"

    def set_password(self, password: bytes) -> None:
        """[N1] `requirepass`: a password of `default` (N1.3)."""
        self.default.secrets.plain = password
        self.settle()

    def put(self, account: Account) -> bool:
        """Add the user or change the one of that name; whether that one may do less now."""
        known = self.by_name.get(account.name)
        if known is None:
            self.by_name[account.name] = account
            self.mark(account.name)
            self.settle()
            return False
        is_less = self.change(known, account)
        self.mark(account.name)
        self.settle()
        return is_less

    def change(self, known: Account, account: Account) -> bool:
        """The user is as the other one says now; whether it may do less."""
        if known.tenant == account.tenant:
            return known.become(account)
        known.is_gone = True  # of another tenant: another user, whose connections end (N10.6)
        self.by_name[account.name] = account
        return True

    def drop(self, name: bytes) -> Account | None:
        """Delete a user; None: there is none."""
        account = self.by_name.pop(name, None)
        if account is not None:
            account.is_gone = True
            self.mark(name)
            self.settle()
        return account

    def replace(self, accounts: list[Account]) -> list[Account]:
        """[N5] Take exactly these users (N5.2); returns those that may do less now, or are gone."""
        less: list[Account] = []
        wanted = {one.name: one for one in accounts}
        if DEFAULT not in wanted:
            wanted[DEFAULT] = everything(DEFAULT)
        wanted[DEFAULT].secrets.plain = self.default.secrets.plain
        for name in list(self.by_name):
            if name not in wanted:
                account = self.by_name.pop(name)
                account.is_gone = True
                self.mark(name)
                less.append(account)
        for name, account in wanted.items():
            known = self.by_name.get(name)
            if known is None:
                self.by_name[name] = account
            elif known.is_same(account):
                continue
            elif self.change(known, account):
                less.append(known)
            self.mark(name)
        self.settle()
        return less
