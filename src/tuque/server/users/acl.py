"""The table of users, for all doors (SPEC N1)."""

import hashlib
import os
from typing import Final, final

from tuque.server.users.account import DEFAULT, Account, digest_text, everything
from tuque.server.users.denials import Denials
from tuque.server.users.guesses import Guesses
from tuque.server.users.hasher import Hasher, Work
from tuque.server.users.tenants import Tenant

DIGEST_BYTES: Final = 8
DIGESTS: Final = 1 << 64


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
