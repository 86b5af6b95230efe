"""`tuque console`: the web console as a program. Decides who may sign in, and where it listens."""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tuque.errors import ConfigError
from tuque.lazygroup import missing_extra
from tuque.nodeoptions import NodeOptions, node_options
from tuque.smallfile import WEAK_SECRET, Renewed, is_weak_key, read_small
from tuque.web import login as kept
from tuque.web.actions import ActionLog
from tuque.web.login import User
from tuque.web.site import Site

if TYPE_CHECKING:
    import uvicorn

log: Final = logging.getLogger("tuque.web")

PORT: Final = 7780
SECRET_BYTES: Final = 32
ENDED: Final = ".ended"  # of --secret-file: the sessions that were ended
LOCAL: Final = ("127.0.0.1", "::1", "localhost")


@click.command(context_settings={"help_option_names": ["--help"]})
@node_options
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address of the pages.")
@click.option(
    "--web-port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="0: any."
)
@click.option("--name", default="", help="Shown on every page, such as: shop, production.")
@click.option("--users", "users_file", type=click.Path(path_type=Path), help="File of users.")
@click.option("--add-user", metavar="NAME", help="Asks for a password, and adds a user to --users.")
@click.option("--role", default="reader", type=click.Choice(["reader", "admin"]), show_default=True)
@click.option(
    "--action-log", type=click.Path(path_type=Path), help="File of what was changed, by whom."
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path, exists=True),
    help="Signs sessions, which then outlive a restart.",
)
@click.option("--https", "is_secure", is_flag=True, help="Behind a proxy with TLS: secure cookies.")
@click.option(
    "--trusted-proxies",
    default="",
    metavar="ADDRESSES",
    help="Addresses or networks, with commas: their X-Forwarded-For is believed.",
)
@click.option(
    "--tls-cert-file",
    "cert",
    type=click.Path(path_type=Path),
    help="Serve https with this certificate, in PEM.",
)
@click.option("--tls-key-file", "key", type=click.Path(path_type=Path), help="Key of it, in PEM.")
def console(
    node: NodeOptions,
    listen: str,
    web_port: int,
    name: str,
    users_file: Path | None,
    add_user: str | None,
    role: str,
    action_log: Path | None,
    secret_file: Path | None,
    is_secure: bool,
    trusted_proxies: str,
    cert: Path | None,
    key: Path | None,
) -> None:
    """Show and change a cluster in the browser.

    Users are those of --users, or `admin` and `reader` with the passwords in
    TUQUE_CONSOLE_ADMIN_PASSWORD and TUQUE_CONSOLE_READER_PASSWORD. Without any, `admin` gets a
    password for this run, which is printed.
    """
    try:
        if add_user is not None:
            add(users_file, add_user, "admin" if role == "admin" else "reader")
            return
        users, password = users_of(users_file)
        secret = secret_of(secret_file)
        actions = ActionLog(action_log)
        proxies = proxies_of(trusted_proxies)
        contexts = None if cert is None and key is None else contexts_of(cert, key)
    except (ConfigError, OSError) as err:
        raise click.ClickException(str(err)) from None
    if password and listen not in LOCAL:
        raise click.ClickException("--listen at another address needs users: see --users")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    ended = None if secret_file is None else secret_file.with_name(secret_file.name + ENDED)
    has_tls = is_secure or contexts is not None
    if is_secure and not proxies:
        log.warning("without --trusted-proxies all users have the address of the proxy")
    try:
        site = Site(node.settings(), users, secret, actions, name, has_tls, ended)
    except ConfigError as err:
        raise click.ClickException(str(err)) from None
    serve(site, listen, web_port, password, proxies, contexts)


def serve(
    site: Site,
    listen: str,
    web_port: int,
    password: str,
    proxies: list[str],
    contexts: Renewed[ssl.SSLContext] | None,
) -> None:
    """Serves the pages until the program is stopped."""
    try:
        import uvicorn

        config = config_of(site, listen, web_port, proxies)
    except ModuleNotFoundError as err:
        raise missing_extra(err, "console") from None
    config.load()
    config.ssl = None if contexts is None else serving(contexts)
    server = uvicorn.Server(config)
    place = f"[{listen}]" if ":" in listen else listen
    try:
        listener = bound(listen, web_port)
    except OSError as err:
        reason = err.strerror or err
        where = f"{place}:{web_port}: {reason}; choose another --web-port"
        raise click.ClickException(f"cannot listen on {where}") from None
    port = listener.getsockname()[1]
    scheme = "http" if contexts is None else "https"
    click.echo(f"the console is at {scheme}://{place}:{port}")
    if password:
        click.echo(f"sign in as admin with the password {password}")
    server.run(sockets=[listener])


def config_of(site: Site, listen: str, web_port: int, proxies: list[str]) -> uvicorn.Config:
    """[O14] How the pages are served: the header of proxies counts from these alone (O14.39)."""
    import uvicorn

    from tuque.web.app import Punctual, made

    return uvicorn.Config(
        made(site),
        host=listen,
        port=web_port,
        http=Punctual,
        log_level="warning",
        server_header=False,
        proxy_headers=len(proxies) > 0,
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=3,
        ws="none",
    )


def proxies_of(text: str) -> list[str]:
    """Parse a comma-separated list of addresses and networks; ConfigError names a bad entry."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    for one in found:
        try:
            ipaddress.ip_network(one)
        except ValueError as err:
            raise ConfigError(f"--trusted-proxies: {err}") from None
    return found


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to the address; OSError if that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def contexts_of(cert: Path | None, key: Path | None) -> Renewed[ssl.SSLContext]:
    """[X5] What serves https, of the files as they are (X5.3). ConfigError: what is wrong."""
    if cert is None or key is None:
        raise ConfigError("--tls-cert-file and --tls-key-file belong together")
    return Renewed([cert, key], lambda: context_of(cert, key), log)


def serving(contexts: Renewed[ssl.SSLContext]) -> ssl.SSLContext:
    """The context of a listener, each of whose connections gets the one of now."""

    def take(connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = contexts.now()

    first = context_of_no_file()
    first.sni_callback = take
    return first


def context_of(cert: Path, key: Path) -> ssl.SSLContext:
    """One that has read the files. ConfigError says what is wrong with them."""
    context = context_of_no_file()
    try:
        for path in (cert, key):
            read_small(path)  # OpenSSL would wait for a pipe
        context.load_cert_chain(cert, key, password=no_passphrase)
    except ssl.SSLError as err:
        raise ConfigError(f"{cert}, {key}: not used, {err.reason or 'not PEM'}") from None
    except OSError as err:
        raise ConfigError(f"{cert}, {key}: {err.strerror}") from None
    return context


def context_of_no_file() -> ssl.SSLContext:
    """One without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def no_passphrase() -> str:
    """OpenSSL would ask for it on the terminal."""
    raise ConfigError("the key has a passphrase: take one without")


def users_of(path: Path | None) -> tuple[Mapping[str, User], str]:
    """The users, and the password of one that was made for this run."""
    if path is not None:
        return kept.UsersFile(path), ""
    users = kept.of_environment(os.environ)
    return (users, "") if users else kept.for_once()


def secret_of(path: Path | None) -> bytes:
    """What signs sessions. ConfigError if a file has too little."""
    if path is None:
        return secrets.token_bytes(SECRET_BYTES)
    try:
        found = read_small(path).strip()
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}") from None
    if len(found) < SECRET_BYTES:
        raise ConfigError(f"{path} has fewer than {SECRET_BYTES} bytes")
    if is_weak_key(found):
        raise ConfigError(f"{path} can be guessed: it needs {WEAK_SECRET}")
    return found


def add(path: Path | None, name: str, role: kept.Role) -> None:
    """Adds a user to the file, or gives one another password."""
    if path is None:
        raise ConfigError("--add-user needs --users, the file to write to")
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    user = kept.made(name, role, password)
    users = kept.read(path) if path.exists() else {}
    users[name] = user
    kept.write_private(path, "".join(kept.line_of(one) + "\n" for one in users.values()))
    click.echo(f"{name} may {'change things' if role == 'admin' else 'look'}: {path}")
