"""What TLS costs: throughput beside clear text, and handshakes that are never finished.

python bench/handshakes.py
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import ssl
import statistics
import subprocess
import tempfile
import threading
from pathlib import Path

import servers

CONNECTIONS = 16
DEPTH = 16
HALF_OPEN = 1_000


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of this machine that signs itself, and its key."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split()
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words, *names, *files], check=True, capture_output=True)
    return cert, key


def rate(port: int, cert: Path | None, count: int) -> float:
    """ADDJOBs a second of redis-benchmark, 16 connections of 16 requests each."""
    words = ["redis-benchmark", "-p", str(port), "-c", str(CONNECTIONS), "-P", str(DEPTH)]
    words += ["-n", str(count), "--csv"]
    if cert is not None:
        words += ["--tls", "--cacert", str(cert)]
    words += ["ADDJOB", "q", "x" * 100, "0"]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return float(out.splitlines()[-1].split(",")[1].strip('"'))


def told(name: str, found: list[float]) -> None:
    """Print one row."""
    p99 = found[len(found) * 99 // 100]
    print(f"{name:40} p99 {p99:7.2f} ms  longest {found[-1]:7.2f} ms", flush=True)


def shake(port: int, stop: threading.Event, done: list[int]) -> None:
    """Whole handshakes, one after the other."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    while not stop.is_set():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
            context.wrap_socket(sock).close()
            done[0] += 1


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=300_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cert, key = make_certificate(Path(scratch))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            tls_port = probe.getsockname()[1]
        files = ("--tls-cert-file", str(cert), "--tls-key-file", str(key))
        node = servers.tuque("--tls-port", str(tls_port), "--maxmemory", "8gb", *files)
        ratios = []
        for _ in range(args.rounds):
            clear, secure = rate(node.port, None, args.count), rate(tls_port, cert, args.count)
            ratios.append(secure / clear)
            print(f"ADDJOB 16 x 16: clear {clear:9.0f}/s  TLS {secure:9.0f}/s  {ratios[-1]:.3f}")
        print(f"TLS / clear text: {statistics.median(ratios):.3f}", flush=True)
        told("PING, nothing beside it", servers.waits(node.port, 3))
        with contextlib.ExitStack() as stack:
            for number in range(HALF_OPEN):
                # from 4 addresses of this machine: one address may have 256 of them
                one = socket.socket()
                one.bind((f"127.0.0.{2 + number % 4}", 0))
                one.connect(("127.0.0.1", tls_port))
                stack.enter_context(one)
                one.sendall(b"\x16\x03\x01\x02")
            told(f"PING beside {HALF_OPEN} half-open handshakes", servers.waits(node.port, 3))
        stop, done = threading.Event(), [0]
        thread = threading.Thread(target=shake, args=(tls_port, stop, done))
        thread.start()
        told("PING beside whole handshakes", servers.waits(node.port, 3))
        stop.set()
        thread.join()
        print(f"{done[0] / 3:.0f} handshakes a second")
        node.close()


if __name__ == "__main__":
    main()
