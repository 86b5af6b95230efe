"""Who may use the console: users and their roles, passwords, signed sessions, tokens of forms.

A session is a cookie that the console signed: nothing is kept of it but its end. Knows no
requests.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tuque.errors import ConfigError
from tuque.smallfile import Renewed, new_characters, read_small

log: Final = logging.getLogger("tuque.web")

LASTS_S: Final = 12 * 3600.0
COOKIE: Final = "tuque_console"
TRIES: Final = 5  # wrong passwords of one address, then it waits
TRIES_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000


class Session(msgspec.Struct, frozen=True):
    """Who signed in, and until when (unix s)."""

    id: str
    name: str
    role: str
    ends_s: float

    @property
    def may_act(self) -> bool:
        return self.role == "admin"


class Sessions:
    """Makes and reads sessions. Those that were ended are known until their time is over."""

    def __init__(
        self, secret: bytes, users: Mapping[str, User], ended_file: Path | None = None
    ) -> None:
        """[O14] Sessions of these users. `ended_file` keeps which were ended, over a restart.

        ConfigError if it cannot be read.
        """
        self._secret = secret
        self._users = users
        self._ended_file = ended_file
        self._ended = {} if ended_file is None else ended_of(ended_file)
        self._wrong: dict[str, list[float]] = {}

    def begin(self, user: User, now_s: float) -> tuple[Session, str]:
        """A new session, and the value of its cookie."""
        session = Session(secrets.token_urlsafe(18), user.name, user.role, now_s + LASTS_S)
        fields = [session.id, session.name, self._mark(user), session.ends_s]
        body = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
        return session, f"{body}.{self._signed('session', body)}"

    def read(self, cookie: str, now_s: float) -> Session | None:
        """The session of a cookie; None if it is not ours, or over, or the user has changed."""
        body, _, signature = cookie.partition(".")
        if not hmac.compare_digest(self._signed("session", body).encode(), signature.encode()):
            return None
        id, name, mark, ends_s = json.loads(base64.urlsafe_b64decode(body))
        user = self._users.get(name)
        if now_s >= ends_s or id in self._ended or user is None or mark != self._mark(user):
            return None
        return Session(id, name, user.role, ends_s)

    def end(self, session: Session, now_s: float) -> None:
        """[O14] Makes its cookie worthless; OSError if that cannot be kept (O14.36)."""
        self._ended = {id: ends_s for id, ends_s in self._ended.items() if ends_s > now_s}
        self._ended[session.id] = session.ends_s
        if self._ended_file is not None:
            lines = [f"{id} {ends_s!r}\n" for id, ends_s in self._ended.items()]
            write_private(self._ended_file, "".join(lines))

    def _mark(self, user: User) -> str:
        """What changes with the role and the password."""
        return self._signed("user", f"{user.name} {user.role} {user.salt.hex()} {user.key.hex()}")

    def token(self, session: Session) -> str:
        """What forms of this session carry."""
        return self._signed("form", session.id)

    def is_token(self, session: Session, token: str) -> bool:
        """Whether a form is of this session."""
        given = token.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(self.token(session).encode(), given)

    def must_wait_s(self, address: str, now_s: float) -> float:
        """How long an address must wait before it may try a password again."""
        tried = self._wrong.get(house_of(address), [])
        recent = [at_s for at_s in tried if now_s - at_s < TRIES_S]
        return TRIES_S - (now_s - recent[0]) if len(recent) >= TRIES else 0.0

    def try_one(self, address: str, now_s: float) -> None:
        """Counts a password as wrong before it is checked: others may come meanwhile."""
        house = house_of(address)
        recent = [at_s for at_s in self._wrong.pop(house, []) if now_s - at_s < TRIES_S]
        self._wrong[house] = [*recent, now_s][-TRIES:]
        while len(self._wrong) > ADDRESSES_MAX:
            del self._wrong[next(iter(self._wrong))]

    def was_right(self, address: str, tried_s: float) -> None:
        """The password tried at that instant was right: it does not count."""
        house = house_of(address)
        left = list(self._wrong.get(house, []))
        if tried_s in left:
            left.remove(tried_s)
        if left:
            self._wrong[house] = left
        else:
            self._wrong.pop(house, None)

    def _signed(self, what: str, text: str) -> str:
        return hmac.new(self._secret, f"{what} {text}".encode(), hashlib.sha256).hexdigest()


def ended_of(path: Path) -> dict[str, float]:
    """The ids of sessions that were ended, and when their time is over."""
    try:
        words = [line.split() for line in read_small(path).decode().splitlines()]
        return {id: float(ends_s) for id, ends_s in words}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as err:
        raise ConfigError(f"{path}, the sessions that were ended, cannot be read: {err}") from None


def write_private(path: Path, text: str) -> None:
    """Replaces a file that only its owner reads."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)  # a link of somebody else's
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    beside.replace(path)


def house_of(address: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits that a customer has."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


# ---- Users of the console: their roles, and how their passwords are kept.
#
# A file has a line for each user, `name:role:scrypt$salt$key`, the last two in hexadecimal. Knows
# no requests.


Role: TypeAlias = Literal["reader", "admin"]

NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
LEAST: Final = 8  # characters of a password
ADMIN_VARIABLE: Final = "TUQUE_CONSOLE_ADMIN_PASSWORD"
READER_VARIABLE: Final = "TUQUE_CONSOLE_READER_PASSWORD"
COST: Final = {"n": 1 << 14, "r": 8, "p": 1}


class User(msgspec.Struct, frozen=True):
    """A name, what it may do, and its password's key."""

    name: str
    role: Role
    salt: bytes
    key: bytes

    @property
    def may_act(self) -> bool:
        return self.role == "admin"


def made(name: str, role: Role, password: str, salt: bytes | None = None) -> User:
    """A user with this password. ConfigError if one of them cannot be."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a user: letters, digits and _.@- only")
    if new_characters(password) < LEAST:
        raise ConfigError(
            f"the password of {name} has fewer than {LEAST} characters, without those that repeat"
        )
    salt = os.urandom(16) if salt is None else salt
    return User(name, role, salt, key_of(password, salt))


def key_of(password: str, salt: bytes) -> bytes:
    """What is kept of a password."""
    return hashlib.scrypt(password.encode("utf-8", "surrogateescape"), salt=salt, dklen=32, **COST)


def line_of(user: User) -> str:
    """A user as a line of the file."""
    return f"{user.name}:{user.role}:scrypt${user.salt.hex()}${user.key.hex()}"


def read(path: Path) -> dict[str, User]:
    """The users of a file. ConfigError names the line that is wrong."""
    try:
        lines = read_small(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"the file of users cannot be read: {err}") from None
    users: dict[str, User] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            user = parsed(line.strip(), f"{path}:{number}")
            users[user.name] = user
    if not users:
        raise ConfigError(f"{path} names no user")
    return users


class UsersFile(Mapping[str, User]):
    """[O14] The users of a file as it is now (O14.38). ConfigError if it is wrong at first."""

    def __init__(self, path: Path) -> None:
        self._file = Renewed([path], lambda: read(path), log)

    def __getitem__(self, name: str) -> User:
        return self._file.now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.now())

    def __len__(self) -> int:
        return len(self._file.now())


def parsed(line: str, where: str) -> User:
    """One line of the file."""
    name, _, rest = line.partition(":")
    role, _, secret = rest.partition(":")
    kind, _, salted = secret.partition("$")
    salt, _, key = salted.partition("$")
    if role not in ("reader", "admin") or kind != "scrypt" or not NAME.fullmatch(name):
        raise ConfigError(f"{where}: not name:role:scrypt$salt$key")
    try:
        return User(
            name, "admin" if role == "admin" else "reader", *map(bytes.fromhex, (salt, key))
        )
    except ValueError:
        raise ConfigError(f"{where}: salt and key are not hexadecimal") from None


def of_environment(environ: Mapping[str, str]) -> dict[str, User]:
    """The users `admin` and `reader`, if the environment has their passwords."""
    users: dict[str, User] = {}
    named: tuple[tuple[str, Role], ...] = ((ADMIN_VARIABLE, "admin"), (READER_VARIABLE, "reader"))
    for variable, role in named:
        if environ.get(variable):
            salt = hashlib.sha256(variable.encode()).digest()  # the same after a restart
            users[role] = made(role, role, environ[variable], salt)
    return users


def for_once() -> tuple[dict[str, User], str]:
    """One user `admin` whose password is new with each start, and that password."""
    password = secrets.token_urlsafe(12)
    return {"admin": made("admin", "admin", password)}, password


NOBODY: Final = made("nobody", "reader", secrets.token_urlsafe(12))


def checked(users: Mapping[str, User], name: str, password: str) -> User | None:
    """The user with this password; takes as long for one that is not there."""
    user = users.get(name)
    kept = NOBODY if user is None else user
    is_right = hmac.compare_digest(key_of(password, kept.salt), kept.key)
    return user if is_right else None
