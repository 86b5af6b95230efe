"""docs/taskiq.md, typed as it is."""

from __future__ import annotations

import pytest
from newcomer import Page, Tour

pytest.importorskip("taskiq", reason="taskiq is not installed: make setup-dev")


@pytest.mark.slow
def test_the_page_works_as_it_is(tour: Tour) -> None:
    tour.log.touch()
    Page("taskiq", tour).type_all()
    for process in tour.running:
        assert tour.stop(process) in (0, -2)
