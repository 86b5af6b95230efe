"""`manage.py tuque_worker`: which backends and queues it serves, and connections around jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shop_app.configured import tasks_of

from tuque.errors import ConfigError
from tuque.testing import TestApp
from tuque.worker import App

pytest.importorskip("django_tasks")
OTHER = {"BACKEND": "django_tasks.backends.dummy.DummyBackend"}


def with_tasks(**backends: Any) -> Any:
    """Within it TASKS is that."""
    from django.test import override_settings

    return override_settings(TASKS=backends)


def test_the_words_before_the_first_option_are_backends(_project: None) -> None:
    from tuque.django.management.commands.tuque_worker import split

    assert split([]) == ([], [])
    assert split(["a", "b", "-c", "4", "--burst"]) == (["a", "b"], ["-c", "4", "--burst"])
    words = ["--settings", "shop.settings", "-c", "4", "--pythonpath=x"]
    assert split(words) == ([], ["-c", "4"])


def test_all_backends_of_tuque_are_served_with_their_queues_in_order(_project: None) -> None:
    from tuque.django.worker import chosen, served

    backends = {"default": tasks_of(["b", "a"]), "mail": tasks_of(["m"], prefix="x."), "o": OTHER}
    with with_tasks(**backends):
        app = served(chosen(()))
        assert app.queues == ["b", "a", "x.m"]
        assert served(chosen(("mail",))).queues == ["x.m"]
        assert app.tasks.get("shop_app.tasks.add") is not None


def test_what_a_worker_cannot_serve_is_refused(_project: None) -> None:
    from tuque.django.worker import chosen, served

    far = tasks_of(url="tuque://127.0.0.1:9")
    with with_tasks(default=tasks_of(), far=far, o=OTHER):
        with pytest.raises(ConfigError, match="TASKS has no 'none'; it has default, far, o"):
            chosen(("none",))
        with pytest.raises(ConfigError, match=r"TASKS\['o'\] is no backend of Tuque"):
            chosen(("o",))
        with pytest.raises(ConfigError, match=r"different brokers: .* tuque_worker far"):
            served(chosen(()))
    with with_tasks(o=OTHER), pytest.raises(ConfigError, match="no backend of Tuque: set"):
        chosen(())


def test_an_app_of_its_own_runs_beside(_project: None, tuque_app: TestApp) -> None:
    import shop_app.jobs as jobs

    from tuque.django.worker import chosen, served

    options = {"url": "", "app": "shop_app.jobs:app"}
    with with_tasks(default=tasks_of(["mail"], **options)):
        app = served(chosen(()))
        assert app is jobs.app and app.queues == ["own", "mail"]
        assert app.tasks["shop_app.jobs.own"] is jobs.own


class Noted:
    """In the place of Django's functions about connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tuque.django import running

        self.calls: list[str] = []
        for name in ("close_old_connections", "reset_queries"):
            monkeypatch.setattr(running, name, lambda name=name: self.calls.append(name))


def test_connections_are_looked_at_before_and_after_each_job(
    shop: Any, tuque_app: TestApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.test import override_settings

    from tuque.django.running import Connections

    noted = Noted(monkeypatch)
    app = App()
    app.use(Connections())

    @app.task
    def plain() -> None:
        noted.calls.append("plain")

    @app.task
    async def coroutine() -> None:
        noted.calls.append("coroutine")

    for task in (plain, coroutine):
        task.enqueue()
    with override_settings(DEBUG=True):
        tuque_app.run_until_idle()
    close = "close_old_connections"
    assert noted.calls == [
        close, "reset_queries", "plain", close, close, "reset_queries", "coroutine", close,
    ]  # fmt: skip


def test_all_connections_are_closed_before_the_first_job_and_at_the_end(
    _project: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuque.django import running

    calls: list[str] = []
    monkeypatch.setattr(running.connections, "close_all", lambda: calls.append("close"))

    async def use() -> None:
        async with running.Connections().lifespan():
            calls.append("jobs")

    asyncio.run(use())
    assert calls == ["close", "jobs", "close"]


def test_the_page_of_the_admin_is_for_staff_with_the_permission(_project: None) -> None:
    from django.contrib.admin.sites import AdminSite
    from django.core.exceptions import PermissionDenied
    from django.test import RequestFactory

    from tuque.django.admin import JobsAdmin
    from tuque.django.models import Jobs

    class User:
        is_staff = True
        perms: tuple[str, ...] = ()

        def has_perm(self, name: str) -> bool:
            return name in self.perms

    page = JobsAdmin(Jobs, AdminSite())
    request = RequestFactory().get("/")
    request.user = user = User()
    with pytest.raises(PermissionDenied):
        page.changelist_view(request)
    user.perms = ("tuque.view_jobs",)
    assert page.has_view_permission(request) and not page.has_add_permission(request)
    user.is_staff = False
    assert not page.has_module_permission(request)


def test_the_admin_shows_the_queues_of_the_cluster(_project: None, node: Any) -> None:
    from tuque import Client
    from tuque.django.admin import shown
    from tuque.django.backend import task_backend

    options = {"url": node.url, "console": "http://c/"}
    with Client(node.url) as client, with_tasks(default=tasks_of(["a b", "none"], **options)):
        client.addjob("a b", b"x")
        found = shown(task_backend("default"))
    (first, none), problem = found.rows, found.problem
    assert not problem and first[0] == "a b" and first[1] is not None and first[1].ready == 1
    assert first[2] == "http://c/queue?name=a+b" and none[1] is None
    away = {"url": "tuque://127.0.0.1:9"}
    with with_tasks(default=tasks_of(["a"], **away)):
        assert "127.0.0.1:9" in shown(task_backend("default")).problem
