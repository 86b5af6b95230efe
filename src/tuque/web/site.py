"""What all pages share: the watch over the nodes, users, sessions, the log of actions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from tuque.client.url import Settings
from tuque.clusterview.dead_letters import DeadLetterCache
from tuque.clusterview.watch import Watch
from tuque.web.actions import ActionLog, Running
from tuque.web.login import Session, Sessions, User
from tuque.web.show.text import key, over

if TYPE_CHECKING:
    from tuque.clusterview.figures import View
    from tuque.clusterview.work import Found


# pages of what nodes say now
ASKED = (
    "/queue",
    "/job",
    "/dead",
    "/tubes",
    "/schedules",
    "/groups",
    "/group",
    "/topics",
    "/workers",
    "/leases",
)


class Site:
    """One console."""

    def __init__(
        self,
        settings: Settings,
        users: Mapping[str, User],
        secret: bytes,
        log: ActionLog,
        name: str = "",
        is_secure: bool = False,
        ended_file: Path | None = None,
    ) -> None:
        self.watch = Watch(settings)
        self.users = users
        self.sessions = Sessions(secret, users, ended_file)
        self.log = log
        self.name = name
        self.is_secure = is_secure
        self.running = Running(log)
        self.graves = DeadLetterCache(self.watch.nodes)
        self.scans: dict[str, tuple[float, Found]] = {}  # by queue: until when they serve
        self.notes: dict[str, list[str]] = {}  # to say on the next page of a session


class Ask(msgspec.Struct):
    """One question: the words of the address, and who asks."""

    site: Site
    path: str
    words: dict[str, str]
    session: Session
    many: dict[str, list[str]] = {}

    def word(self, name: str, otherwise: str = "") -> str:
        return self.words.get(name, otherwise)

    def number(self, name: str, otherwise: int, least: int = 0, most: int = 1 << 31) -> int:
        """A word as a number within bounds."""
        found = self.words.get(name, "")
        value = int(found) if found.isascii() and found.isdigit() and len(found) < 20 else otherwise
        return max(least, min(most, value))

    def start(self, size: int) -> int:
        """From which row on: the word `at`, or `page`, which counts pages from 1."""
        return self.number("at", (self.number("page", 1, 1) - 1) * size)

    @property
    def address(self) -> str:
        """Where the same is asked again."""
        words = [(name, key(value)) for name, values in self.many.items() for value in values]
        return f"{self.path}?{urlencode(words, errors='surrogateescape')}"

    @property
    def view(self) -> View:
        return self.site.watch.view()


class Page(msgspec.Struct):
    """What a page shows: its template, and what that needs."""

    template: str
    context: dict[str, Any]
    status: int = 200


def shared(ask: Ask, page: str) -> dict[str, Any]:
    """What the frame of every page shows."""
    site = ask.site
    view = ask.view
    now_s = time.time()
    nodes = sorted(site.watch.nodes.known.values(), key=lambda one: one.place)
    away = [one for one in nodes if one.id in view.old]
    return {
        "base": "frame.html",
        "page": page,
        "site": site,
        "ask": ask,
        "session": ask.session,
        "may_act": ask.session.may_act,
        "csrf": site.sessions.token(ask.session),
        "view": view,
        "dead_count": view.dead,
        "nodes": nodes,
        "away": away,
        "over": over(len(nodes), len(away)),
        "now_s": now_s,
        "is_cut_off": site.watch.nodes.is_cut_off,
        "is_blind": site.watch.nodes.is_cut_off and ask.path in ASKED,
        "is_refused": site.watch.nodes.is_refused,
        "why_cut_off": next((one.error for one in nodes if one.error), site.watch.nodes.refused),
        "heard_s": max((one.heard_s for one in nodes), default=0.0),
        "places": site.watch.nodes.places,
        "running": site.running.shown(ask.session.name),
        "notes": site.notes.pop(ask.session.id, []),
    }
