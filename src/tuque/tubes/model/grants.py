"""Who may call which functions of which tube over IPROTO (SPEC T10).

A *holder* is a user or a role, as a key. A connection has the rights of its user and of the user's
roles. This table knows neither passwords nor the roles of users, nor the journal.
"""

from typing import Final, final

from mypy_extensions import i64

CALL: Final = 1  # bits of a grant
TRUNCATE: Final = 2

CALLED: Final = [
    b"put",
    b"take",
    b"touch",
    b"ack",
    b"release",
    b"peek",
    b"bury",
    b"kick",
    b"delete",
]
IDENTIFY: Final = b"queue.identify"
STATISTICS: Final = b"queue.statistics"
PREFIX: Final = b"queue.tube"
GRANT_BYTES: Final = 2000  # one grant with its names, roughly
USER: Final = b"u"
ROLE: Final = b"r"


def user_key(name: bytes) -> bytes:
    """The holder key of a user."""
    return USER + name


def role_key(name: bytes) -> bytes:
    """The holder key of a role."""
    return ROLE + name


@final
class Grant:
    """One grant, for listings."""

    def __init__(self, holder: bytes, tube: bytes, prefix: bytes, bits: i64) -> None:
        self.holder = holder
        self.tube = tube
        self.prefix = prefix
        self.bits = bits


@final
class Rights:
    """All grants, and the function names that they allow."""

    def __init__(self) -> None:
        self.held: dict[bytes, dict[bytes, dict[bytes, int]]] = {}  # holder, tube, prefix: bits
        self.names: dict[bytes, dict[bytes, None]] = {}  # by holder
        self.count: i64 = 0

    def bits(self, holder: bytes, tube: bytes, prefix: bytes) -> i64:
        """The rights of the holder on the tube under that prefix."""
        tubes = self.held.get(holder)
        prefixes = tubes.get(tube) if tubes is not None else None
        return prefixes.get(prefix, 0) if prefixes is not None else 0

    def set(self, holder: bytes, tube: bytes, prefix: bytes, bits: i64) -> None:
        """Set exactly these rights of the holder on the tube under that prefix."""
        before = self.bits(holder, tube, prefix)
        if bits == before:
            return
        tubes = self.held.setdefault(holder, {})
        prefixes = tubes.setdefault(tube, {})
        names = self.names.setdefault(holder, {})
        if before == 0:
            self.count += 1
        if bits != 0:
            prefixes[prefix] = int(bits)
        else:
            del prefixes[prefix]
            self.count -= 1
            if len(prefixes) == 0:
                del tubes[tube]
            if len(tubes) == 0:
                del self.held[holder]
        begin = prefix + b"." + tube + b":"
        for method in CALLED:
            switch(names, begin + method, bits & CALL != 0)
        switch(names, begin + b"truncate", bits & TRUNCATE != 0)
        if len(names) == 0:
            del self.names[holder]

    def may(self, holders: list[bytes], function: bytes) -> bool:
        """Whether one of the holders may call the function."""
        for holder in holders:
            names = self.names.get(holder)
            if names is None:
                continue
            if function in names:
                return True
            if function in (IDENTIFY, STATISTICS) and self.may_call(holder):
                return True
        return False

    def may_call(self, holder: bytes) -> bool:
        """Whether the holder has CALL on any tube."""
        for prefixes in self.held.get(holder, {}).values():
            for bits in prefixes.values():
                if bits & CALL:
                    return True
        return False

    def has_any(self, holders: list[bytes]) -> bool:
        """Whether one of the holders has any grant."""
        return any(holder in self.held for holder in holders)

    def may_read(self, holders: list[bytes], tube: bytes) -> bool:
        """Whether one of the holders has CALL on the tube, under any prefix."""
        for holder in holders:
            tubes = self.held.get(holder)
            if tubes is None:
                continue
            for bits in tubes.get(tube, {}).values():
                if bits & CALL:
                    return True
        return False

    def listing(self, tube: bytes) -> list[Grant]:
        """The grants on a tube, or all for an empty name, in the order they were made."""
        found: list[Grant] = []
        for holder, tubes in self.held.items():
            names = [tube] if len(tube) > 0 else list(tubes)
            for name in names:
                for prefix, bits in tubes.get(name, {}).items():
                    found.append(Grant(holder, name, prefix, bits))
        return found


def switch(names: dict[bytes, None], name: bytes, is_on: bool) -> None:
    """Add the name, or remove it."""
    if is_on:
        names[name] = None
    else:
        names.pop(name, None)
