"""Users in words, as in ACL SETUSER and ACL LIST, and the users file (SPEC N3, N5)."""

import os
from time import sleep
from typing import Final

from tuque.core.model.stats import TENANT_DIGITS, TENANT_MAX
from tuque.server.config.patterns import MOST
from tuque.server.users.passwords import (
    PASSWORDS_MAX,
    SHA1_BYTES,
    Secrets,
    hash_of,
    parts_of,
    wired_of,
)
from tuque.server.users.passwords import fits as has_hash
from tuque.server.users.tenants import QUOTA_MAX, QUOTAS
from tuque.server.users.users import (
    ALL,
    DEFAULT,
    QUOTA,
    TENANT,
    Account,
    meant,
    tenant_words,
)
from tuque.smallfile import read_small
from tuque.wire.commands.commands import CATEGORIES

PATTERNS_MAX: Final = 100
NAME_MAX: Final = 128
WIRED: Final = b"iproto:"
CHANGES: Final = (b">", b"<")  # passwords: their work is slow

BAD_NAME: Final = (
    "a user's name has 1 to 128 printable characters without spaces, and does not begin with one "
    "of > < # !"
)
SIGNS: Final = (b">", b"<", b"#", b"!")  # what follows may be a password or its hash
UNKNOWN: Final = "there is no such word, see ACL HELP"
NO_COMMAND: Final = "there is no such command or category, see ACL CAT"
OPEN: Final = "every user may use it"
NO_CHANNELS: Final = "there are no channels here"
NO_HALVES: Final = "rights to read or to write a queue are those of its commands: use ~pattern"
NO_SELECTORS: Final = "a user has one set of rights: make another user"
BAD_HASH: Final = "after # comes a hash as ACL GETUSER shows it, after > a password"
FAST_HASH: Final = "a SHA-256 is guessed too fast: set the password anew with >password"
NO_PASSWORD: Final = "the user has no such password"
MANY_PASSWORDS: Final = f"a user has at most {PASSWORDS_MAX} passwords"
MANY_PATTERNS: Final = f"a user has at most {PATTERNS_MAX} patterns"
LONG_PATTERN: Final = f"a pattern has at most {MOST} bytes"
BAD_TENANT: Final = f"a tenant's name has 1 to {TENANT_MAX} of a-z, 0-9 and -"
NOT_DEFAULT: Final = "the user 'default' is of no tenant: make another user"
NO_TENANT: Final = "a quota is of a tenant: tenant:NAME comes before it"
BAD_QUOTA: Final = (
    "quota:connections=N, quota:adds=N (in a second), quota:jobs=N or quota:bytes=N; "
    f"N at most {QUOTA_MAX}, 0 for none"
)
BAD_WIRED: Final = "after iproto: stand 40 hexadecimal digits"

SHOWN: Final = 128  # bytes of a word in an error

USERS_MAX: Final = 10_000
FILE_BYTES: Final = 16 << 20
LINE_BYTES: Final = 256 << 10  # longer ones would hold up the interpreter, and so the loop
TURN_LINES: Final = 16
USER: Final = b"user"
PLAIN: Final = "a users file has hashes, not passwords: ACL SETUSER, then ACL SAVE writes them"
CUT: Final = "its last line has no end: was it cut while it was written?"


class WordError(ValueError):
    """A word is not understood; the text says which, unless it may be a password, and why."""


def check_name(name: bytes) -> None:
    """Raise WordError for a name that no user can have."""
    if not 1 <= len(name) <= NAME_MAX or any(not 33 <= byte <= 126 for byte in name):
        raise WordError(BAD_NAME)
    if name[:1] in SIGNS:
        raise WordError(BAD_NAME)


def fault(word: bytes, why: str) -> WordError:
    """The error for a word; passwords and hashes are not repeated."""
    shown = word if len(word) <= SHOWN else word[:SHOWN] + b"..."
    if word[:1] in SIGNS:
        shown = word[:1] + b"..."
    elif why == UNKNOWN:  # the > before a password was forgotten
        shown = b"..."
    return WordError(f"'{shown.decode('utf-8', 'backslashreplace')}': {why}")


def apply_words(account: Account, words: list[bytes]) -> None:
    """[N3] Change the account by the words, in their order (N3.2). Raises WordError.

    Slow if there are passwords among them; see `is_slow`.
    """
    for word in words:
        apply_word(account, word)
    account.settle()


def is_slow(words: list[bytes]) -> bool:
    """Whether one of the words is a password: some 40 ms each."""
    return any(word[:1] in CHANGES for word in words)


def apply_word(account: Account, word: bytes) -> None:
    """One word."""
    plain = word.lower()
    secrets = account.secrets
    if plain == b"on" or plain == b"off":
        account.is_on = plain == b"on"
    elif plain == b"nopass":
        secrets.is_free, secrets.hashes, secrets.wired = True, [], []
    elif plain == b"resetpass":
        secrets.is_free, secrets.hashes, secrets.wired = False, [], []
    elif plain == b"iproto" or plain == b"noiproto":
        secrets.is_wired = plain == b"iproto"
        if not secrets.is_wired:
            secrets.wired = []
    elif plain == b"reset":
        account.is_on, account.rules, account.patterns = False, [], []
        account.tenant, account.quotas = b"", {}
        account.secrets = Secrets()
        account.secrets.plain = secrets.plain
    elif plain in (b"allkeys", b"resetkeys"):
        account.patterns = [ALL] if plain == b"allkeys" else []
    elif plain in (b"allcommands", b"nocommands"):
        account.add_rule("+@all" if plain == b"allcommands" else "-@all")
    elif plain == b"notenant":
        account.tenant, account.quotas = b"", {}
    elif plain.startswith(TENANT):
        apply_tenant(account, word)
    elif plain.startswith(QUOTA):
        apply_quota(account, word)
    elif word[:1] in (b">", b"<", b"#", b"!") or plain.startswith(WIRED):
        apply_secret(account, word)
    elif word[:1] in (b"+", b"-"):
        apply_rule(account, word)
    elif word[:1] == b"~":
        apply_pattern(account, word)
    elif word[:1] == b"%":
        raise fault(word, NO_HALVES)
    elif word[:1] == b"&" or plain in (b"allchannels", b"resetchannels"):
        raise fault(word, NO_CHANNELS)
    elif word[:1] == b"(" or plain == b"clearselectors":
        raise fault(word, NO_SELECTORS)
    else:
        raise fault(word, UNKNOWN)


def apply_secret(account: Account, word: bytes) -> None:
    """A password, or a hash of one."""
    secrets = account.secrets
    kind, rest = word[:1], word[1:]
    if kind == b">":
        if len(secrets.hashes) >= PASSWORDS_MAX:
            raise fault(word, MANY_PASSWORDS)
        if not any(has_hash(rest, one) for one in secrets.hashes):
            secrets.hashes.append(hash_of(rest))
        if secrets.is_wired and wired_of(rest) not in secrets.wired:
            secrets.wired.append(wired_of(rest))
        secrets.is_free = False
    elif kind == b"<":
        gone = [one for one in secrets.hashes if has_hash(rest, one)]
        if not gone:
            raise fault(word, NO_PASSWORD)
        secrets.hashes = [one for one in secrets.hashes if one not in gone]
        secrets.wired = [one for one in secrets.wired if one != wired_of(rest)]
    elif kind == b"#":
        text = hash_in(word)
        if len(secrets.hashes) >= PASSWORDS_MAX:
            raise fault(word, MANY_PASSWORDS)
        if text not in secrets.hashes:
            secrets.hashes.append(text)
        secrets.is_free = False
    elif kind == b"!":
        text = rest.decode("ascii", "replace")
        if text not in secrets.hashes:
            raise fault(word, NO_PASSWORD)
        secrets.hashes.remove(text)
    else:
        add_wired(account, word)


def hash_in(word: bytes) -> str:
    """The hash after #. Raises WordError."""
    text = word[1:].decode("ascii", "replace")
    try:
        parts_of(text)
    except ValueError:
        is_sha = len(text) == 64 and all(one in "0123456789abcdefABCDEF" for one in text)
        raise fault(word, FAST_HASH if is_sha else BAD_HASH) from None
    return text


def add_wired(account: Account, word: bytes) -> None:
    """iproto:DIGITS."""
    try:
        found = bytes.fromhex(word[len(WIRED) :].decode("ascii", "replace"))
    except ValueError:
        found = b""
    if len(found) != SHA1_BYTES:
        raise WordError(f"'iproto:...': {BAD_WIRED}")
    account.secrets.is_wired = True
    if found not in account.secrets.wired:
        account.secrets.wired.append(found)
        del account.secrets.wired[:-PASSWORDS_MAX]


def apply_rule(account: Account, word: bytes) -> None:
    """+unit, -@category, ...; a category may stand without its @."""
    name = word[1:].decode("ascii", "replace").lower()
    if name in CATEGORIES or name == "all":
        name = "@" + name
    units = meant(name)
    if not units:
        raise fault(word, NO_COMMAND)
    if word[:1] == b"-" and all(unit.is_open for unit in units):
        raise fault(word, OPEN)
    account.add_rule(word[:1].decode() + name)


def apply_pattern(account: Account, word: bytes) -> None:
    """~pattern."""
    if len(word) - 1 > MOST:
        raise fault(word, LONG_PATTERN)
    if any(not 33 <= byte <= 255 or byte == 127 for byte in word):
        raise fault(word, "a pattern has no spaces or control characters: use ? in their place")
    account.add_pattern(word[1:])
    if len(account.patterns) > PATTERNS_MAX:
        raise fault(word, MANY_PATTERNS)


def apply_tenant(account: Account, word: bytes) -> None:
    """tenant:NAME."""
    name = word[len(TENANT) :]
    if not 1 <= len(name) <= TENANT_MAX or name.translate(None, TENANT_DIGITS):
        raise fault(word, BAD_TENANT)
    if account.name == DEFAULT:
        raise fault(word, NOT_DEFAULT)
    account.tenant = name


def apply_quota(account: Account, word: bytes) -> None:
    """quota:WHAT=N; 0 takes it away."""
    what, _, digits = word[len(QUOTA) :].lower().partition(b"=")
    if what not in QUOTAS or not digits.isdigit() or not 0 <= int(digits) <= QUOTA_MAX:
        raise fault(word, BAD_QUOTA)
    if len(account.tenant) == 0:
        raise fault(word, NO_TENANT)
    if int(digits) == 0:
        account.quotas.pop(what, None)
    else:
        account.quotas[what] = int(digits)


def words_of(account: Account, is_shown: bool = True) -> list[bytes]:
    """[N3] The words that make the same user out of a new one; shown without SHA-1 (N3.6)."""
    secrets = account.secrets
    words = [b"on" if account.is_on else b"off"]
    if secrets.is_free:
        words.append(b"nopass")
    words += [b"#" + one.encode() for one in secrets.hashes]
    if secrets.is_wired:
        words.append(b"iproto")
    if not is_shown:
        words += [WIRED + one.hex().encode() for one in secrets.wired]
    words += tenant_words(account)
    words += [b"~" + one for one in account.patterns]
    words += [one.encode() for one in account.rules] or [b"-@all"]
    return words


def line_of(account: Account, is_shown: bool = True) -> bytes:
    """The user as one line of ACL LIST, or of the users file."""
    return b" ".join([b"user", account.name, *words_of(account, is_shown)])


# ---- The users file: one user a line, in the words of SETUSER, with hashes (SPEC N5)


class UsersFileError(ValueError):
    """The users file cannot be read or written; the text says where and why, without secrets."""


def read_users(path: str, is_guarded: bool = True) -> list[Account]:
    """[N5] The users of the file (N5.1). Raises UsersFileError."""
    text = text_of(path, is_guarded)
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
            raise UsersFileError(f"{where}: user '{name}' is there twice")
        found[account.name] = account
        if len(found) > USERS_MAX:
            raise UsersFileError(f"{where}: more than {USERS_MAX} users")
    if len(text) > 0 and not text.endswith(b"\n"):
        raise UsersFileError(f"{path}: {CUT}")
    return list(found.values())


def text_of(path: str, is_guarded: bool) -> bytes:
    """What the file has. Raises UsersFileError."""
    try:
        return read_small(path, FILE_BYTES, is_guarded)
    except OSError as error:
        raise UsersFileError(f"{path}: {error.strerror}") from None


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
