"""What each tenant has of the tables that all share: outcomes, dead letters, what is staged.

Where a common bound is reached, what the tenant with much of it has goes first (SPEC N11.7).
"""

from collections import OrderedDict
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.tally import tenant_of

FAIR: Final = 4  # a tenant with more than this part of a common bound is first to lose


@final
class Share:
    """What one tenant has."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.kept: OrderedDict[bytes, int] = OrderedDict()  # bytes of its outcomes, oldest first
        self.kept_bytes: i64 = 0
        # its dead letters, oldest first: bytes in all, and without the body
        self.letters: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self.letter_bytes: i64 = 0
        self.extra_bytes: i64 = 0
        self.staged_jobs: i64 = 0
        self.staged_bytes: i64 = 0

    def is_empty(self) -> bool:
        """Whether it has nothing any more."""
        return len(self.kept) == 0 and len(self.letters) == 0 and self.staged_bytes == 0


@final
class Shares:
    """The shares of all tenants; what is nobody's is not counted."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Share] = {}
        self.kept_most: Share | None = None  # had most when something was added last
        self.letters_most: Share | None = None

    def of(self, tenant: bytes) -> Share:
        """The share of that tenant."""
        share = self.by_name.get(tenant)
        if share is None:
            share = Share(tenant)
            self.by_name[tenant] = share
        return share

    def left(self, share: Share) -> None:
        """Forget the share if it is empty."""
        if share.is_empty() and self.by_name.get(share.name) is share:
            del self.by_name[share.name]

    def keep(self, tenant: bytes, id: bytes, size: i64) -> None:
        """An outcome of the tenant is kept, or has another size now."""
        share = self.of(tenant)
        share.kept_bytes += size - share.kept.get(id, 0)
        share.kept[id] = int(size)
        most = self.kept_most
        if most is None or share.kept_bytes > most.kept_bytes:
            self.kept_most = share

    def forget(self, tenant: bytes, id: bytes) -> None:
        """That outcome is not kept any more."""
        share = self.of(tenant)
        share.kept_bytes -= share.kept.pop(id, 0)
        self.left(share)

    def kept_first(self, limit_bytes: i64) -> bytes:
        """The oldest outcome of a tenant with more than its part; empty: there is none."""
        most = self.kept_most
        if most is None or most.kept_bytes * FAIR <= limit_bytes:
            return b""
        return next(iter(most.kept))

    def bury(self, queue: bytes, id: bytes, size: i64, body_bytes: i64) -> None:
        """A dead letter came to the queue; `size` is without the body."""
        tenant = tenant_of(queue)
        if len(tenant) == 0:
            return
        share = self.of(tenant)
        share.letters[id] = (int(size + body_bytes), int(size))
        share.letter_bytes += size + body_bytes
        share.extra_bytes += size
        most = self.letters_most
        if most is None or share.letter_bytes > most.letter_bytes:
            self.letters_most = share

    def dig(self, queue: bytes, id: bytes) -> None:
        """A dead letter left the queue."""
        tenant = tenant_of(queue)
        if len(tenant) == 0:
            return
        share = self.of(tenant)
        size, extra = share.letters.pop(id, (0, 0))
        share.letter_bytes -= size
        share.extra_bytes -= extra
        self.left(share)

    def letters_first(self, limit_bytes: i64) -> bytes:
        """The oldest dead letter of a tenant with more than its part; empty: there is none."""
        most = self.letters_most
        if most is None or most.letter_bytes * FAIR <= limit_bytes or len(most.letters) < 2:
            return b""
        return next(iter(most.letters))

    def stage(self, txn: bytes, jobs: i64, size: i64) -> None:
        """So many jobs of so many bytes more are staged in the transaction."""
        tenant = tenant_of(txn)
        if len(tenant) == 0:
            return
        share = self.of(tenant)
        share.staged_jobs += jobs
        share.staged_bytes += size
        self.left(share)
