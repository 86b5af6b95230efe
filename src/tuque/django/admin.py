"""The page of the admin: what waits and runs in the queues of the project, and what has failed.

For staff with the permission `tuque.view_jobs`. It shows sums of all nodes in reach, changes
nothing, and leads to the console for the rest.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import click
from django.conf import settings as project
from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from tuque.client.commands.operate import QueueRow
from tuque.clusterview.view import asked
from tuque.django.backend import TuqueBackend, task_backend
from tuque.django.models import Jobs
from tuque.nodeoptions import HOST, PORT, NodeOptions

QUEUES_MAX: Final = 500  # asked for
MAY_VIEW: Final = "tuque.view_jobs"


class Shown(NamedTuple):
    """One backend on the page; `problem` says why it has no rows."""

    alias: str
    rows: list[tuple[str, QueueRow | None, str]]  # name, figures, link
    problem: str


def shown(backend: TuqueBackend) -> Shown:
    """The queues of a backend as the cluster has them now."""
    console = backend.settings.console.rstrip("/")
    names = backend.all_queues()
    try:
        rows, _ = asked(
            NodeOptions(HOST, PORT, backend.app.url or "", "", ""),
            lambda nodes: nodes.queues("name", False, limit=QUEUES_MAX),
        )
    except click.ClickException as err:
        return Shown(backend.alias, [], err.message)
    links = [f"{console}/queue?{urlencode({'name': name})}" if console else "" for name in names]
    found = {row.name: row for row in rows}
    figures = [(name, found.get(name), link) for name, link in zip(names, links, strict=True)]
    return Shown(backend.alias, figures, "")


@admin.register(Jobs)
class JobsAdmin(admin.ModelAdmin):
    """Shows, and does nothing."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self._may(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def _may(self, request: HttpRequest) -> bool:
        return bool(request.user.is_staff and request.user.has_perm(MAY_VIEW))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The page; PermissionDenied for others."""
        if not self._may(request):
            raise PermissionDenied
        backends: list[Shown] = []
        for alias in getattr(project, "TASKS", {}):
            backend = task_backend(alias)
            if not isinstance(backend, TuqueBackend):
                continue
            try:
                backends.append(shown(backend))
            except ImproperlyConfigured as err:
                backends.append(Shown(alias, [], str(err)))
        context = {
            **self.admin_site.each_context(request),
            "title": "Queues",
            "opts": self.model._meta,
            "backends": backends,
        }
        return TemplateResponse(request, "tuque/queues.html", context)
