"""Reads the client's settings from a URL, the environment and arguments; keeps secrets masked.

tuque://[user:password@]host[:port][,host2[:port2]...]/?timeout=5&retries=3
tuques://...                  the same over TLS
tuque+unix:///path/to/socket  through a unix socket
"""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from tuque.client.retry import Retry
from tuque.errors import ConfigError
from tuque.platforms import NO_UNIX, has_unix_sockets

DEFAULT_PORT = 7711
DEFAULT_URL = f"tuque://127.0.0.1:{DEFAULT_PORT}"
URL_VARIABLE = "TUQUE_URL"
SCHEMES = ("tuque", "tuques", "tuque+unix")
FILES = ("cafile", "certfile", "keyfile")


class Address(NamedTuple):
    """Where a node listens; port 0 means that `host` is the path of a unix socket."""

    host: str
    port: int

    def __str__(self) -> str:
        if self.port == 0:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a client; times in seconds."""

    seeds: tuple[Address, ...]
    user: str = ""
    password: str = ""
    timeout_s: float = 5.0
    connect_timeout_s: float = 2.0
    login_timeout_s: float = 15.0  # once the node is there (N6.7)
    search_timeout_s: float | None = None  # while no node can be reached; None: the call's timeout
    retry: Retry = Retry()
    max_connections: int = 32
    name: str = ""
    tls: bool = False
    cafile: str = ""  # who signs the nodes' certificates; empty: those the system trusts
    certfile: str = ""  # of the client's own certificate, in PEM
    keyfile: str = ""  # of its key; empty: in `certfile`
    follow: bool = True
    discover: bool = True

    @property
    def has_login(self) -> bool:
        """Whether a connection begins with AUTH; a user may have no password."""
        return bool(self.user or self.password)

    @property
    def masked_url(self) -> str:
        """The URL of the nodes without secrets."""
        scheme = "tuque+unix" if self.seeds[0].port == 0 else "tuques" if self.tls else "tuque"
        login = f"{self.user}:***@" if self.has_login else ""
        return f"{scheme}://{login}{','.join(map(str, self.seeds))}"

    def __repr__(self) -> str:
        return f"Settings({self.masked_url})"


def settings(
    url: str | None = None,
    *,
    timeout: float | None = None,
    connect_timeout: float | None = None,
    login_timeout: float | None = None,
    search_timeout: float | None = None,
    retry: Retry | None = None,
    max_connections: int | None = None,
    name: str | None = None,
    follow: bool | None = None,
    discover: bool | None = None,
) -> Settings:
    """Settings from a URL (default TUQUE_URL, else the local node); arguments override it."""
    found = parse(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
    return _checked(
        msgspec.structs.replace(
            found,
            timeout_s=found.timeout_s if timeout is None else timeout,
            connect_timeout_s=(
                found.connect_timeout_s if connect_timeout is None else connect_timeout
            ),
            login_timeout_s=found.login_timeout_s if login_timeout is None else login_timeout,
            search_timeout_s=found.search_timeout_s if search_timeout is None else search_timeout,
            retry=found.retry if retry is None else retry,
            max_connections=found.max_connections if max_connections is None else max_connections,
            name=found.name if name is None else name,
            follow=found.follow if follow is None else follow,
            discover=found.discover if discover is None else discover,
        )
    )


def parse(url: str) -> Settings:
    """The settings in a URL; ConfigError says what is wrong, without showing a password."""
    if not isinstance(url, str):
        raise TypeError(f"a client URL is a str, not {url!r}")
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in SCHEMES:
        raise ConfigError(
            f"a client URL starts with one of {', '.join(s + '://' for s in SCHEMES)}"
        )
    front, _, query = rest.partition("?")
    login, at, place = front.rpartition("@")
    if scheme == "tuque+unix":
        seeds: tuple[Address, ...] = (_unix_address(place),)
    else:
        hosts, _, path = place.partition("/")
        if path:
            raise ConfigError(f"a client URL has no path after its hosts: /{path}")
        seeds = tuple(_address(part) for part in hosts.split(","))
    user, colon, password = login.partition(":")
    if at and not colon:
        user, password = "", user
    base = Settings(
        seeds=seeds, user=unquote(user), password=unquote(password), tls=scheme == "tuques"
    )
    return _checked(_with_query(base, query))


def url_of(settings: Settings, host: str, port: int) -> str:
    """The URL of another node, with the same login."""
    scheme = "tuques" if settings.tls else "tuque"
    login = f"{quote(settings.user, '')}:{quote(settings.password, '')}@"
    files = {name: getattr(settings, name) for name in FILES if getattr(settings, name)}
    query = f"?{urlencode(files)}" if files else ""
    place = f"[{host}]" if ":" in host else host
    return f"{scheme}://{login if settings.has_login else ''}{place}:{port}{query}"


def _unix_address(path: str) -> Address:
    if not has_unix_sockets():
        raise ConfigError(NO_UNIX)
    if not path.startswith("/"):
        raise ConfigError("a tuque+unix:// URL holds the absolute path of a socket")
    return Address(unquote(path), 0)


def _address(part: str) -> Address:
    host, port = part, ""
    if part.startswith("["):
        host, bracket, after = part[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise ConfigError(f"not a host and port: {part!r}")
        port = after[1:]
    elif ":" in part:
        host, _, port = part.rpartition(":")
    if not host or (":" in host and not part.startswith("[")):
        raise ConfigError(f"not a host and port: {part!r} (IPv6 addresses go in brackets)")
    if not port:
        return Address(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ConfigError(f"the port of {host!r} must be 1 to 65535, not {port!r}")
    return Address(host, int(port))


def _with_query(base: Settings, query: str) -> Settings:
    values: dict[str, object] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key == "timeout":
            values["timeout_s"] = _number(key, text)
        elif key == "connect_timeout":
            values["connect_timeout_s"] = _number(key, text)
        elif key == "login_timeout":
            values["login_timeout_s"] = _number(key, text)
        elif key == "search_timeout":
            values["search_timeout_s"] = _number(key, text)
        elif key == "retries":
            values["retry"] = Retry(attempts=_count(key, text))
        elif key == "max_connections":
            values["max_connections"] = _count(key, text)
        elif key in ("name", *FILES):
            values[key] = text
        elif key in ("follow", "discover"):
            values[key] = _yes_or_no(key, text)
        else:
            raise ConfigError(
                f"unknown client setting {key!r} in the URL; there are: timeout, "
                "connect_timeout, login_timeout, search_timeout, retries, max_connections, name, "
                "cafile, certfile, keyfile, follow, discover"
            )
    return msgspec.structs.replace(base, **values)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{key} must be a number of seconds, not {text!r}") from None


def _count(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{key} must be a whole number, not {text!r}")
    return int(text)


def _yes_or_no(key: str, text: str) -> bool:
    if text not in ("yes", "no"):
        raise ConfigError(f"{key} must be yes or no, not {text!r}")
    return text == "yes"


def check_call(name: str, value: object) -> None:
    """TypeError unless the argument `name` is None, or can be called."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function, not {value!r}")


def _checked(found: Settings) -> Settings:
    if not isinstance(found.retry, Retry):
        raise TypeError(f"retry must be a tuque.Retry, not {found.retry!r}")
    if not isinstance(found.name, str):
        raise TypeError(f"name must be a str, not {found.name!r}")
    for key, choice in (("follow", found.follow), ("discover", found.discover)):
        if not isinstance(choice, bool):
            raise TypeError(f"{key} must be True or False, not {choice!r}")
    for key in FILES:
        if getattr(found, key) and not found.tls:
            raise ConfigError(f"{key} is for TLS: the URL must start with tuques://")
    if found.keyfile and not found.certfile:
        raise ConfigError("keyfile needs certfile, the certificate of the key")
    for key, seconds in (
        ("timeout", found.timeout_s),
        ("connect_timeout", found.connect_timeout_s),
        ("login_timeout", found.login_timeout_s),
        ("search_timeout", 1.0 if found.search_timeout_s is None else found.search_timeout_s),
    ):
        if not isinstance(seconds, int | float) or not 0.0 < seconds <= 86400.0:
            raise ConfigError(
                f"{key} must be more than 0 and at most 86400 seconds, not {seconds!r}"
            )
    count = found.max_connections
    if not isinstance(count, int) or not 1 <= count <= 65535:
        raise ConfigError(f"max_connections must be 1 to 65535, not {count!r}")
    if not all("!" <= c <= "~" for c in found.name):
        raise ConfigError(f"name must be printable ASCII without spaces, not {found.name!r}")
    return found
