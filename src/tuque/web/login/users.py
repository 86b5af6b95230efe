"""Users of the console: their roles, and how their passwords are kept.

A file has a line for each user, `name:role:scrypt$salt$key`, the last two in hexadecimal. Knows no
requests.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tuque.errors import ConfigError

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


def made(name: str, role: Role, password: str) -> User:
    """A user with this password. ConfigError if one of them cannot be."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a user: letters, digits and _.@- only")
    if len(password) < LEAST:
        raise ConfigError(f"the password of {name} has fewer than {LEAST} characters")
    salt = os.urandom(16)
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
        lines = path.read_text("utf-8").splitlines()
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
            users[role] = made(role, role, environ[variable])
    return users


def for_once() -> tuple[dict[str, User], str]:
    """One user `admin` whose password is new with each start, and that password."""
    password = secrets.token_urlsafe(12)
    return {"admin": made("admin", "admin", password)}, password


NOBODY: Final = made("nobody", "reader", secrets.token_urlsafe(12))


def checked(users: Mapping[str, User], name: str, password: str) -> User | None:
    """The user with this password; takes as long for one that is not there."""
    user = users.get(name, NOBODY)
    is_right = hmac.compare_digest(key_of(password, user.salt), user.key)
    return user if is_right and name in users else None
