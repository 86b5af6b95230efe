"""The users who may log in over IPROTO, read once from a file (SPEC I5).

Each line has a user, a password, the word `all` for one who may call everything, and roles:

    admin  sesame                                     all
    bob    #0c6f6845bb8c62b778e9147c272ac4b5bdb9ae71  role:workers role:readers
    guest  nopass                                     all

`#` and 40 hexadecimal digits are SHA-1 of the SHA-1 of the password; a line that begins with `#`
is a comment. A user without `all` needs grants, for himself or for one of his roles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tuque.server.state.iproto_connection import GUEST, User, Users
from tuque.wire.proto.iproto import secret_of

NO_PASSWORD: Final = "nopass"
ALL: Final = "all"
ROLE: Final = "role:"
USERS_MAX: Final = 100_000
HASH_DIGITS: Final = 40


class UsersError(ValueError):
    """The users file is invalid; the text says where and why."""


def read_users(path: str) -> Users:
    """[I5.6] The users of the file. Raises UsersError."""
    users = Users()
    users.is_from_file = True
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsersError(f"{path}: {error}") from None
    seen: set[bytes] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{path}:{number}"
        user = user_of(words, where)
        if user.name in seen:
            raise UsersError(f"{where}: user {words[0]} stands twice")
        if len(seen) >= USERS_MAX:
            raise UsersError(f"{where}: more than {USERS_MAX} users")
        seen.add(user.name)
        users.add(user)
    return users


def user_of(words: list[str], where: str) -> User:
    """The user on one line. Raises UsersError."""
    more = words[2:]
    if len(words) < 2 or any(word != ALL and not is_role(word) for word in more):
        told = "a line has a name, a password and perhaps `all` and words `role:NAME`"
        raise UsersError(f"{where}: {told}")
    name = words[0].encode()
    roles = [word.removeprefix(ROLE).encode() for word in more if word != ALL]
    return User(name, secret_in(words[1], name, where), ALL in more, roles)


def is_role(word: str) -> bool:
    """Whether the word is a role."""
    return word.startswith(ROLE) and len(word) > len(ROLE)


def secret_in(word: str, name: bytes, where: str) -> bytes:
    """What to store of the password in the file. Raises UsersError."""
    if word == NO_PASSWORD:
        if name != GUEST:
            raise UsersError(f"{where}: only guest can do without a password")
        return b""
    if name == GUEST:
        raise UsersError(f"{where}: guest has no password: who connects is guest already")
    if not word.startswith("#"):
        return secret_of(word.encode())
    try:
        secret = bytes.fromhex(word[1:])
    except ValueError:
        secret = b""
    if len(word) != 1 + HASH_DIGITS or len(secret) * 2 != HASH_DIGITS:
        raise UsersError(f"{where}: after # stand {HASH_DIGITS} hexadecimal digits")
    return secret
