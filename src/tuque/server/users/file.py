"""The users file: one user a line, in the words of SETUSER, with hashes (SPEC N5)."""

import os
import stat
from time import sleep
from typing import Final

from tuque.server.users.account import DEFAULT, Account
from tuque.server.users.words import WordError, apply_words, check_name, is_slow, line_of

USERS_MAX: Final = 10_000
FILE_BYTES: Final = 16 << 20
LINE_BYTES: Final = 256 << 10  # longer ones would hold up the interpreter, and so the loop
TURN_LINES: Final = 16
USER: Final = b"user"
PLAIN: Final = "a users file has hashes, not passwords: ACL SETUSER, then ACL SAVE writes them"
CUT: Final = "its last line has no end: was it cut while it was written?"


class UsersFileError(ValueError):
    """The users file cannot be read or written; the text says where and why, without secrets."""


def read_users(path: str) -> list[Account]:
    """[N5] The users of the file (N5.1). Raises UsersFileError."""
    text = text_of(path)
    found: dict[bytes, Account] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if number % TURN_LINES == 0:
            sleep(0)  # this is a thread, and the loop waits for the interpreter
        if len(line) > LINE_BYTES:
            raise UsersFileError(f"{path}:{number}: a line of more than {LINE_BYTES} bytes")
        words = line.split()
        if len(words) == 0 or words[0].startswith(b"#"):
            continue
        where = f"{path}:{number}"
        account = user_in(words, where)
        if account.name in found:
            name = account.name.decode()
            raise UsersFileError(f"{where}: user '{name}' stands twice")
        found[account.name] = account
        if len(found) > USERS_MAX:
            raise UsersFileError(f"{where}: more than {USERS_MAX} users")
    if len(text) > 0 and not text.endswith(b"\n"):
        raise UsersFileError(f"{path}: {CUT}")
    return list(found.values())


def text_of(path: str) -> bytes:
    """What the file has. Raises UsersFileError."""
    try:  # a pipe in its place would be waited for
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UsersFileError(f"{path}: not a regular file")
            parts: list[bytes] = []
            left = FILE_BYTES + 1
            while left > 0:
                part = os.read(file, left)
                if len(part) == 0:
                    break
                parts.append(part)
                left -= len(part)
        finally:
            os.close(file)
    except OSError as error:
        raise UsersFileError(f"{path}: {error.strerror}") from None
    if left == 0:
        raise UsersFileError(f"{path}: more than {FILE_BYTES} bytes")
    return b"".join(parts)


def user_in(words: list[bytes], where: str) -> Account:
    """The user of one line. Raises UsersFileError."""
    if words[0].lower() != USER or len(words) < 2:
        raise UsersFileError(f"{where}: a line begins with `user NAME`")
    try:
        check_name(words[1])
        if is_slow(words[2:]):
            raise UsersFileError(f"{where}: {PLAIN}")
        account = Account(words[1])
        apply_words(account, words[2:])
    except WordError as error:
        raise UsersFileError(f"{where}: {error}") from None
    return account


def write_users(path: str, accounts: list[Account]) -> None:
    """[N5] Replace the file at once, with mode 0600 (N5.4). Raises UsersFileError."""
    lines = [line_of(one, False) + b"\n" for one in accounts if one.name == DEFAULT]
    lines += [line_of(one, False) + b"\n" for one in accounts if one.name != DEFAULT]
    beside = f"{path}.{os.getpid()}.new"
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(file, 0o600)
            data = b"".join(lines)
            while len(data) > 0:
                data = data[os.write(file, data) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(beside, path)
    except OSError as error:
        raise UsersFileError(f"{path}: {error.strerror}") from None


def stamp_of(path: str) -> tuple[int, int, int]:
    """What changes with the file: inode, size, time; zeros if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)
