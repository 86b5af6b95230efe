"""URLs and options of the transport and the backend: what they may be. Errors say what to change.

tuque://[user:password@]host[:port][,host2...][/prefix][?setting=value&...]
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import quote, unquote

from tuque.client.url import parse
from tuque.errors import ConfigError

SCHEMES: Final = ("tuque", "tuques")
CHORD_HEADER: Final = "tuque-chord"  # of the body of a chord, which is added once
log: Final = logging.getLogger("tuque.celery")

# of kombu's own connection and channel: how it reconnects, and what is logged
OF_KOMBU: Final = frozenset(
    """body_encoding callback client_properties connect_retries_timeout confirm_publish
    deadletter_queue errback interval interval_max interval_start interval_step max_retries
    polling_interval retry_errors""".split()
)
NOT_NEEDED: Final = {
    "visibility_timeout": "a task stays its worker's for as long as that lives",
    "unacked_restore_limit": "the broker gives back what a lost worker had",
    "fanout_prefix": "a path in the URL keeps applications apart",
    "fanout_patterns": "the broker matches patterns",
    "socket_timeout": "the setting `timeout` of the URL has that",
    "socket_connect_timeout": "the setting `connect_timeout` of the URL has that",
    "socket_keepalive": "connections are always watched",
    "retry_on_timeout": "the client decides what is safe to send again",
    "health_check_interval": "connections are always watched",
    "queue_order_strategy": "the broker serves queues in turn",
    "sep": "priorities need no queues of their own",
    "priority_steps": "all of 0 to 9 are kept",
}
SSL_FILES: Final = {
    "ca_certs": "cafile",
    "ssl_ca_certs": "cafile",
    "certfile": "certfile",
    "ssl_certfile": "certfile",
    "keyfile": "keyfile",
    "ssl_keyfile": "keyfile",
}
SSL_ALWAYS: Final = ("cert_reqs", "ssl_cert_reqs", "ssl_check_hostname")  # certificates are checked


@dataclass(frozen=True)
class Options:
    """`broker_transport_options`.

    A task of a worker that is silent for `retry` seconds goes to another one. `replicate` is how
    many nodes have each message, by default what the broker decides. A message that was given back
    or lost more than `max_redeliveries` times is a dead letter; 0: never. Without `dead_letters` a
    rejected message is deleted. `priority_order` "asc": larger numbers first, as AMQP; "desc" as
    Redis. `global_keyprefix` goes before the path of the URL. `prefetch` "ahead": as many messages
    as Celery says are held; "none": those that tasks run for count as held until these end.
    """

    retry: int = 90
    replicate: int | None = None
    max_redeliveries: int = 20
    dead_letters: bool = True
    priority_order: str = "asc"
    global_keyprefix: str = ""
    prefetch: str = "ahead"


NAMES: Final = tuple(field.name for field in fields(Options))
_warned: set[str] = set()


def read_options(given: Mapping[str, Any]) -> Options:
    """The options of a transport; ConfigError for the first that is wrong."""
    where = "broker_transport_options"
    own: dict[str, Any] = {}
    for name, value in given.items():
        if name in NAMES:
            own[name] = value
        elif name in NOT_NEEDED:
            warn_once(f"{where} {name!r} has no effect here: {NOT_NEEDED[name]}")
        elif name not in OF_KOMBU:
            near = difflib.get_close_matches(str(name), NAMES, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NAMES)}"
            raise ConfigError(f"{where} has no option {name!r}: {meant}")
    found = Options(**own)
    _check_whole(f"{where}['retry']", found.retry, 3, 86_400)
    _check_whole(f"{where}['max_redeliveries']", found.max_redeliveries, 0, 1_000_000)
    if found.replicate is not None:
        _check_whole(f"{where}['replicate']", found.replicate, 1, 255)
    if not isinstance(found.dead_letters, bool):
        raise ConfigError(f"{where}['dead_letters'] is True or False, not {found.dead_letters!r}")
    if found.priority_order not in ("asc", "desc"):
        raise ConfigError(
            f"{where}['priority_order'] is 'asc' (larger first) or 'desc', not "
            f"{found.priority_order!r}"
        )
    if found.prefetch not in ("ahead", "none"):
        raise ConfigError(f"{where}['prefetch'] is 'ahead' or 'none', not {found.prefetch!r}")
    if not isinstance(found.global_keyprefix, str):
        raise ConfigError(f"{where}['global_keyprefix'] is text, not {found.global_keyprefix!r}")
    return found


def _check_whole(what: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} is a whole number from {least} to {most}, not {value!r}")


def warn_once(text: str) -> None:
    """A warning in the log, the first time in this process."""
    if text not in _warned:
        _warned.add(text)
        log.warning("%s", text)


@dataclass(frozen=True)
class Place:
    """The URL of a client, which has secrets, and what goes before all names; "" or "shop."."""

    url: str
    prefix: str

    @property
    def masked(self) -> str:
        """The URL without its password and settings."""
        path = f"/{self.prefix[:-1]}" if self.prefix else ""
        return parse(self.url).masked_url + path

    def __repr__(self) -> str:
        return f"Place({self.masked})"


def read_url(url: str, ssl: object = None) -> Place:
    """The broker that a URL of Celery names; ConfigError says what is wrong, without secrets."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise ConfigError(f"a URL of Celery starts with tuque:// or tuques://, not {scheme}://")
    front, mark, query = rest.partition("?")
    login, at, hosts = front.rpartition("@")
    hosts, _, path = hosts.partition("/")
    prefix = unquote(path.strip("/"))
    if ssl:
        scheme, query = "tuques", "&".join(filter(None, [query, _of_ssl(ssl)]))
    made = f"{scheme}://{login}{at}{hosts or '127.0.0.1'}"
    made += f"/?{query}" if query or mark else ""
    parse(made)
    return Place(made, f"{prefix}." if prefix else "")


def read_urls(urls: Sequence[str], ssl: object = None) -> Place:
    """The broker whose nodes several URLs name: one client has all of them.

    ConfigError if they differ in more than their hosts.
    """
    first, *others = urls
    front, hosts, end = _around_hosts(first)
    for url in others:
        around = _around_hosts(url)
        if (around[0], around[2]) != (front, end):
            raise ConfigError(
                f"{masked(first)} and {masked(url)} are alternates: they may differ in hosts alone"
            )
        hosts += f",{around[1]}"
    return read_url(f"{front}{hosts}{end}", ssl)


def without_password(url: str) -> str:
    """What kombu may show of a URL, and hand on beside the password."""
    front, hosts, end = _around_hosts(url)
    return f"{_login_of(front)[0]}{hosts}{end}"


def with_password(url: str, password: str | None) -> str:
    """A URL of `without_password` as it was."""
    front, hosts, end = _around_hosts(url)
    start, has_password = _login_of(front)
    if not password or has_password:
        return url
    return f"{start.removesuffix('@')}:{quote(password, '')}@{hosts}{end}"


def _login_of(front: str) -> tuple[str, bool]:
    """What is before the hosts without the password, and whether there was one."""
    scheme, _, login = front.partition("://")
    user, colon, _ = login.removesuffix("@").partition(":")
    return f"{scheme}://{user}{'@' if user else ''}", bool(colon)


def _around_hosts(url: str) -> tuple[str, str, str]:
    """A URL up to its hosts, these, and what follows."""
    found = re.fullmatch(r"(\w+://(?:[^/?]*@)?)([^/?]*)(.*)", url)
    if found is None:
        raise ConfigError("a URL of Celery starts with tuque:// or tuques://")
    front, hosts, end = found.groups()
    return front, hosts or "127.0.0.1", end.rstrip("/")


def _of_ssl(ssl: object) -> str:
    """`broker_use_ssl` as settings of a URL."""
    if ssl is True:
        return ""
    if not isinstance(ssl, Mapping):
        raise ConfigError(f"broker_use_ssl is True or a dict, not {type(ssl).__name__}")
    found: list[str] = []
    for name, value in ssl.items():
        if name in SSL_FILES:
            found.append(f"{SSL_FILES[name]}={quote(str(value), '')}")
        elif name not in SSL_ALWAYS:
            raise ConfigError(
                f"broker_use_ssl has no {name!r} here: it takes ca_certs, certfile, keyfile"
            )
    return "&".join(found)


def masked(url: str) -> str:
    """A URL of a broker for people; of one that is wrong the scheme alone."""
    try:
        return read_url(url).masked
    except ConfigError:
        return f"{url.partition('://')[0]}://..."
