"""Keys by id: bodies, results and progress under them (SPEC U8).

A sealed text begins with MARK, which begins neither JSON nor msgpack nor a result:

    MARK | kind u8 | length of the key's id u8 | id | code 32 bytes | text               signed
    MARK | kind u8 | length of the key's id u8 | id | salt 16 | nonce 12 | AES-GCM       encrypted

What is before the code or the salt, and the place of the text, is under the code or the tag, too;
what travels beside it is not (U8.6). Every encrypted text has an AES key of its own, made of the
salt: so one key may write any number of them.
"""

from __future__ import annotations

import hmac
import importlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

from tuque.errors import ConfigError
from tuque.smallfile import is_weak_key, unmarked

MARK: Final = b"\xc1\xc1"
SIGNED: Final = 1
ENCRYPTED: Final = 2
CODE_BYTES: Final = 32
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
SECRET_BYTES: Final = 32
ID: Final = re.compile(r"[A-Za-z0-9._-]{1,32}")
OVERHEAD_BYTES: Final = len(MARK) + 2 + 32 + SALT_BYTES + NONCE_BYTES + TAG_BYTES  # at most
FILE_BYTES: Final = 65_536
LIBRARY: Final = "cryptography.hazmat.primitives.ciphers.aead"
NO_LIBRARY: Final = "keys that encrypt need `pip install 'tuque[encrypt]'`"
LINE: Final = "a line has an id, `sign` or `encrypt`, and 64 hexadecimal digits"

Kind = Literal["sign", "encrypt"]
BODY: Final = "body"  # of a job, whose id is not known when it is sealed
RESULT: Final = "result"
PROGRESS: Final = "progress"


class BadSeal(Exception):
    """A text that is not sealed, or not with one of the keys; the text of this error says why."""


@dataclass(frozen=True)
class Key:
    """A secret of 32 bytes under an id, and what it does: `sign`, or `encrypt` (which signs, too).

    The id is of letters, digits, `.`, `_` and `-`, at most 32; everybody may see it.
    """

    id: str
    secret: bytes = field(repr=False)
    kind: Kind = "encrypt"

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.id):
            raise ValueError(f"the id of a key has 1 to 32 of A-Z a-z 0-9 . _ -, not {self.id!r}")
        if self.kind not in ("sign", "encrypt"):
            raise ValueError(f"key {self.id}: sign or encrypt, not {self.kind!r}")
        if not isinstance(self.secret, bytes) or len(self.secret) != SECRET_BYTES:
            raise ValueError(f"key {self.id}: a secret has {SECRET_BYTES} bytes")

    @classmethod
    def make(cls, id: str, kind: Kind = "encrypt") -> Key:
        """A new key."""
        return cls(id, secrets.token_bytes(SECRET_BYTES), kind)

    def line(self) -> str:
        """The key as a line of a file of keys."""
        return f"{self.id} {self.kind} {self.secret.hex()}"


class Keys:
    """The keys of a program: the first one seals, each one opens.

    ConfigError without the library that encryption needs.
    """

    def __init__(self, first: Key, *others: Key) -> None:
        self._keys: dict[bytes, tuple[Key, bytes]] = {}
        for key in (first, *others):
            if key.id.encode() in self._keys:
                raise ValueError(f"there are two keys {key.id}")
            use = b"tuque sign 1" if key.kind == "sign" else b"tuque encrypt 1"
            self._keys[key.id.encode()] = (key, hmac.digest(key.secret, use, sha256))
        self.id = first.id
        self.hides: bool = first.kind == "encrypt"  # nobody else can read what it seals
        self._aes: Any = None
        if any(key.kind == "encrypt" for key in (first, *others)):
            self._aes = aes_gcm()

    def __repr__(self) -> str:
        return f"Keys({', '.join(key.id for key, _ in self._keys.values())})"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Keys:
        """[U8] The keys in a file, one a line, the first one seals (U8.5). ConfigError."""
        try:
            with open(path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = unmarked(file.read(FILE_BYTES)).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the keys in {path} cannot be read: {error}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"{path} is not for its owner alone: `chmod 600 {path}`")
        try:
            found = list(keys_in(text.splitlines()))
            if not found:
                raise ValueError(f"it has none; {LINE}")
            return cls(*found)
        except ValueError as error:
            raise ConfigError(f"the keys in {path}: {error}") from None

    def seal(self, text: bytes, place: str = BODY, job_id: str = "") -> bytes:
        """[U8] The text under the first key; only for that place, of that job."""
        key, root = next(iter(self._keys.values()))
        kind = SIGNED if key.kind == "sign" else ENCRYPTED
        head = MARK + bytes((kind, len(key.id))) + key.id.encode()
        around = bound(head, place, job_id)
        if kind == SIGNED:
            return head + hmac.digest(root, around + text, sha256) + text
        chance = os.urandom(SALT_BYTES + NONCE_BYTES)
        secret: bytes = self._cipher(root, chance).encrypt(chance[SALT_BYTES:], text, around)
        return head + chance + secret

    def open(self, sealed: bytes, place: str = BODY, job_id: str = "") -> bytes:
        """[U8] The text in it; BadSeal unless one of the keys has sealed it, for that place."""
        if not is_sealed(sealed):
            raise BadSeal("it is neither signed nor encrypted")
        kind, end = sealed[2], 4 + sealed[3]
        head, rest = sealed[:end], sealed[end:]
        key, root = self._keys.get(head[4:], (None, b""))
        if key is None:
            raise BadSeal(f"it is under an unknown key {head[4:].decode('ascii', 'replace')!r}")
        if kind != (SIGNED if key.kind == "sign" else ENCRYPTED):
            raise BadSeal(f"key {key.id} is for another kind: {key.kind}")
        around = bound(head, place, job_id)
        if kind == SIGNED:
            text = rest[CODE_BYTES:]
            if not hmac.compare_digest(rest[:CODE_BYTES], hmac.digest(root, around + text, sha256)):
                raise BadSeal(f"its code is wrong: it was changed, or key {key.id} is another one")
            return text
        chance, secret = rest[: SALT_BYTES + NONCE_BYTES], rest[SALT_BYTES + NONCE_BYTES :]
        try:
            found = self._cipher(root, chance).decrypt(chance[SALT_BYTES:], secret, around)
        except Exception:  # InvalidTag, and ValueError for what is too short
            raise BadSeal(
                f"it cannot be decrypted: it was changed, or key {key.id} is another one"
            ) from None
        return bytes(found)

    def _cipher(self, root: bytes, chance: bytes) -> Any:
        """The AES of one text."""
        return self._aes(hmac.digest(root, chance[:SALT_BYTES], sha256))


def is_sealed(text: bytes) -> bool:
    """Whether a text is signed or encrypted."""
    return text[:2] == MARK and len(text) >= 4 and text[2] in (SIGNED, ENCRYPTED)


def bound(head: bytes, place: str, job_id: str) -> bytes:
    """What a text is tied to, beside its key."""
    return b"%s%b:%b:%d:" % (head, place.encode(), job_id.encode(), len(head))


def keys_in(lines: Iterable[str]) -> Iterator[Key]:
    """The keys in the lines of a file. ValueError names the line."""
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            id, kind, digits = words
            if kind not in ("sign", "encrypt"):
                raise ValueError(kind)
            secret = bytes.fromhex(digits)
        except ValueError:
            raise ValueError(f"line {number}: {LINE}") from None
        if is_weak_key(secret):
            raise ValueError(f"line {number}: a key that can be guessed; {LINE}, by chance")
        yield Key(id, secret, "sign" if kind == "sign" else "encrypt")


def aes_gcm() -> Any:
    """The class of the library. ConfigError without it."""
    try:
        return importlib.import_module(LIBRARY).AESGCM
    except ImportError:
        raise ConfigError(NO_LIBRARY) from None
