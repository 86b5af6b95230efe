"""docs/django.md, typed as it is."""

from __future__ import annotations

import pytest
from newcomer import Page, Tour

django = pytest.importorskip("django", reason="django is not installed: make setup-dev")
IS_NEW = django.VERSION >= (6, 0)
if not IS_NEW:
    pytest.importorskip("django_tasks", reason="django-tasks is not installed: make setup-dev")


def of_this_version(text: str) -> str:
    """The page with the names of Django 5.2, if it is that."""
    if IS_NEW:
        return text
    text = text.replace("from django.tasks", "from django_tasks")
    return text.replace('["tuque.django"', '["django_tasks", "tuque.django"')


@pytest.mark.slow
def test_the_page_works_as_it_is(tour: Tour) -> None:
    tour.log.touch()
    Page("django", tour, of_this_version).type_all()
    for process in tour.running:
        assert tour.stop(process) in (0, -2)
