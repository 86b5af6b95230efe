"""URLs and options of Celery: what is taken, what is refused, and that no password is shown."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import kombu
import pytest
from celery import Celery, chord
from celery.app.utils import bugreport, filter_hidden_settings

from tuque.celery.entry import add_aliases
from tuque.celery.options import masked, read_options, read_url, read_urls
from tuque.errors import ConfigError

add_aliases()  # kombu alone does not load it


@pytest.mark.parametrize(
    ("url", "made", "prefix"),
    [
        ("tuque://a,b:7712", "tuque://a,b:7712", ""),
        ("tuque://", "tuque://127.0.0.1", ""),
        ("tuque://u:p@a/shop", "tuque://u:p@a", "shop."),
        ("tuques://a/shop?timeout=5", "tuques://a/?timeout=5", "shop."),
    ],
)
def test_a_path_is_a_prefix(url: str, made: str, prefix: str) -> None:
    found = read_url(url)
    assert (found.url, found.prefix) == (made, prefix)


def test_alternates_are_nodes_of_one_client() -> None:
    found = read_urls(["tuque://u:p@a:1/shop", "tuque://u:p@b,c/shop/"])
    assert (found.url, found.prefix) == ("tuque://u:p@a:1,b,c", "shop.")
    transport = kombu.Connection("tuque://a:1;tuque://b:2").transport
    assert transport.broker is kombu.Connection("tuque://a:1,b:2").transport.broker
    with pytest.raises(ConfigError) as refused:
        read_urls(["tuque://u:secret@a/shop", "tuque://u:other@b"])
    assert str(refused.value) == (
        "tuque://u:***@a:7711/shop and tuque://u:***@b:7711 are alternates: "
        "they may differ in hosts alone"
    )


def test_a_password_is_never_shown() -> None:
    url = "tuque://me:secret@a,b:7712/shop?timeout=5"
    assert masked(url) == "tuque://me:***@a:7711,b:7712/shop"
    assert "secret" not in repr(read_url(url))
    connection = kombu.Connection(url)
    assert connection.as_uri() == masked(url)
    assert connection.as_uri(include_password=True) == url
    assert "secret" not in repr(connection)
    assert masked("tuque://me:secret@a:no") == "tuque://..."


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retri": 9}, "broker_transport_options has no option 'retri': did you mean 'retry'?"),
        ({"zzz": 9}, "there are retry, replicate, max_redeliveries, dead_letters"),
        ({"retry": 0}, "broker_transport_options['retry'] is a whole number from 3 to 86400"),
        ({"dead_letters": 1}, "['dead_letters'] is True or False, not 1"),
        ({"priority_order": "up"}, "is 'asc' (larger first) or 'desc', not 'up'"),
        ({"prefetch": "all"}, "['prefetch'] is 'ahead' or 'none', not 'all'"),
        ({"global_keyprefix": 1}, "['global_keyprefix'] is text, not 1"),
    ],
)
def test_a_wrong_option_says_what_to_change(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_options(options)
    assert text in str(refused.value)


def test_options_of_redis_are_named_and_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tuque.celery"):
        assert read_options({"visibility_timeout": 60, "max_retries": 1}).retry == 90
        read_options({"visibility_timeout": 60})
    assert [one.message for one in caplog.records] == [
        "broker_transport_options 'visibility_timeout' has no effect here: a task stays its "
        "worker's for as long as that lives"
    ]


def test_use_ssl_is_tls_with_its_files() -> None:
    ssl = {"ca_certs": "/ca.pem", "ssl_cert_reqs": 2}
    assert read_url("tuque://a", ssl).url == "tuques://a/?cafile=%2Fca.pem"
    assert read_url("tuque://a", True).url == "tuques://a"
    with pytest.raises(ConfigError, match="broker_use_ssl has no 'ciphers' here"):
        read_url("tuque://a", {"ciphers": "x"})


def test_another_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="starts with tuque:// or tuques://, not redis://"):
        read_url("redis://a")


def test_celery_finds_both_without_an_import(celery_entries: Path) -> None:
    code = "from celery import Celery; from kombu.transport import resolve_transport as r; "
    code += "print(r('tuque'), r('tuques'), Celery(backend='tuque://me:secret@a').backend.as_uri())"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(celery_entries), *sys.path])}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout.count("tuque.celery.transport.Transport") == 2, ran.stderr
    assert "tuque://me:***@a:7711" in ran.stdout


@pytest.mark.parametrize(
    "url",
    ["tuque://me:hunter%402@a:1,b/s?timeout=5", "tuque://:hunter%402@a;tuque://:hunter%402@b"],
)
def test_what_kombu_tells_of_a_connection_has_no_password_in_its_urls(url: str) -> None:
    connection = kombu.Connection(url)
    assert connection.transport  # as of each connection that was made
    told = dict(connection.info())
    assert told.pop("password") == "hunter@2"
    assert "hunter" not in repr(told)
    for other in (pickle.loads(pickle.dumps(connection)), connection.clone()):
        assert other.transport.broker is connection.transport.broker


@pytest.fixture
def celery(celery_entries: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Celery]:
    monkeypatch.syspath_prepend(str(celery_entries))
    return partial(Celery, set_as_current=False)


def test_results_without_a_host_are_where_the_broker_is(celery: Callable[..., Celery]) -> None:
    app = celery("shop", broker="tuque://me:hunter2@a:7711,b:7712/shop", backend="tuque://")
    assert app.backend.as_uri() == "tuque://me:***@a:7711,b:7712/shop"
    for shown in (bugreport(app), repr(filter_hidden_settings(dict(app.conf)))):
        assert "hunter2" not in shown and "tuque" in shown
    with pytest.raises(ConfigError, match="broker_url is no URL of Tuque: name a node in"):
        _ = celery("shop", broker="redis://a", backend="tuque://").backend


def test_a_wrong_backend_is_a_sentence(celery: Callable[..., Celery]) -> None:
    with pytest.raises(ConfigError, match="the port of 'a' must be 1 to 65535, not 'no'"):
        _ = celery("shop", backend="tuque://a:no").backend


def test_a_chord_without_a_backend_is_a_sentence(celery: Callable[..., Celery]) -> None:
    app = celery("shop", broker="tuque://127.0.0.1:1")
    body = app.signature("shop.body")
    with pytest.raises(NotImplementedError, match="chords requires a result backend"):
        chord([app.signature("shop.part")], body, app=app).delay()
