"""Sdists and wheels that are equal whenever they are built of the same files.

Gives each file the time of the commit and plain rights, and puts a list of components into wheels:
an SBOM in the form of CycloneDX, where PEP 770 has it. Knows no other file of the tree.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import time
import uuid
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

PLAIN: Final = 0o644
PROGRAM: Final = 0o755
# What a wheel has besides our own files: where it is, and how its version is found there.
UPLOT: Final = ("tuque/web/static/vendor/uplot.js", re.compile(rb"uPlot \(v([\d.]+)\)"))


def settle_sdist(path: Path, epoch_s: int) -> None:
    """Write an sdist anew: sorted, of nobody, with one time."""
    with tarfile.open(path) as old:
        parts = [(one, old.extractfile(one)) for one in old.getmembers() if one.isfile()]
        read = [(one, file.read() if file else b"") for one, file in parts]
    with (
        path.open("wb") as out,
        gzip.GzipFile("", "wb", 9, out, epoch_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for one, data in sorted(read, key=lambda part: part[0].name):
            entry = tarfile.TarInfo(one.name)
            entry.size, entry.mtime = len(data), epoch_s
            entry.mode = PROGRAM if one.mode & 0o100 else PLAIN
            new.addfile(entry, io.BytesIO(data))


def settle_wheel(path: Path, epoch_s: int, pins: str) -> None:
    """Write a wheel anew: with one time, plain rights, and its SBOM."""
    with zipfile.ZipFile(path) as old:
        read = {one.filename: old.read(one) for one in old.infolist() if not one.is_dir()}
    (record,) = [name for name in read if name.endswith(".dist-info/RECORD")]
    folder = record.removesuffix("/RECORD")
    metadata = read[f"{folder}/METADATA"].decode()
    listed = components(read, metadata, pins)
    made = json.dumps(sbom(path.name, metadata, listed, epoch_s), indent=1) + "\n"
    name = folder.partition("-")[0]
    read[f"{folder}/sboms/{name}.cdx.json"] = made.encode()
    read[record] = b""
    read[record] = record_of(read, record)
    moment = time.gmtime(epoch_s)[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name in sorted(read, key=lambda one: (".dist-info/" in one, one == record, one)):
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (0o100000 | (PROGRAM if name.endswith(".so") else PLAIN)) << 16
            new.writestr(entry, read[name])


def record_of(files: dict[str, bytes], record: str) -> bytes:
    """The list of all files with hashes and sizes; itself without them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name in sorted(files):
        if name == record:
            writer.writerow([name, "", ""])
        else:
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=")
            writer.writerow([name, f"sha256={digest.decode()}", len(files[name])])
    return out.getvalue().encode()


# ---- the list of components


def components(files: dict[str, bytes], metadata: str, pins: str) -> list[dict[str, Any]]:
    """What is in the wheel of others, and what the wheel requires, in the version tried with it."""
    listed = (line.split("==") for line in pins.splitlines() if "==" in line)
    versions = {canonical(name): version for name, version in listed}
    found = []
    place, seeks = UPLOT
    if place in files and (version := seeks.search(files[place])):
        found.append(component("npm", "uplot", version[1].decode(), "required"))
    if any(name.endswith(".so") for name in files):  # its run time is in what it compiled
        found.append(component("pypi", "mypy", versions["mypy"], "required"))
    own = HeaderParser().parsestr(metadata)
    for line in own.get_all("Requires-Dist") or []:
        name = canonical(re.split(r"[\s;<>=!~\[]", line, maxsplit=1)[0])
        exact = re.search(r"==([\w.]+)", line)
        version_of = exact[1] if exact else versions.get(name, "")
        scope = "optional" if "extra ==" in line else "required"
        if name != own["Name"]:  # an extra that names other extras
            found.append(component("pypi", name, version_of, scope))
    unique = {one["bom-ref"]: one for one in reversed(found)}
    return [unique[ref] for ref in sorted(unique)]


def canonical(name: str) -> str:
    """The name of a package as an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def component(kind: str, name: str, version: str, scope: str) -> dict[str, Any]:
    """One of them, as CycloneDX has it."""
    purl = f"pkg:{kind}/{name}" + (f"@{version}" if version else "")
    found = {"type": "library", "bom-ref": purl, "name": name, "purl": purl, "scope": scope}
    return found | ({"version": version} if version else {})


def sbom(file: str, metadata: str, listed: list[dict[str, Any]], epoch_s: int) -> dict[str, Any]:
    """The document; the same for the same wheel."""
    own = HeaderParser().parsestr(metadata)
    subject = component("pypi", str(own["Name"]), str(own["Version"]), "required")
    del subject["scope"]
    subject["licenses"] = [{"license": {"id": str(own["License-Expression"])}}]
    serial = uuid.uuid5(uuid.NAMESPACE_OID, f"{file} {epoch_s}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_s)),
            "component": subject,
        },
        "components": listed,
        "dependencies": [
            {"ref": subject["bom-ref"], "dependsOn": [one["bom-ref"] for one in listed]}
        ],
    }


# ---- comparing two builds


def differences(one: Path, other: Path) -> list[str]:
    """What differs in two files of the same name; of compiled wheels only names and sources count.

    A compiler may write its object code otherwise each time.
    """
    if one.read_bytes() == other.read_bytes():
        return []
    if "-cp" not in one.name:
        return [f"{one.name}: the builds differ in {', '.join(inner(one, other)) or 'order'}"]
    return [f"{one.name}: {name} differs" for name in inner(one, other)]


def inner(one: Path, other: Path) -> list[str]:
    """The names in two archives that only one has, or whose contents differ and may not."""
    old, new = contents(one), contents(other)
    free = (".so", "/RECORD") if "-cp" in one.name else ()
    return sorted(
        name
        for name in old.keys() | new.keys()
        if name not in old
        or name not in new
        or (old[name] != new[name] and not name.endswith(free))
    )


def contents(path: Path) -> dict[str, bytes]:
    """The files of an sdist or a wheel."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(path) as sdist:
        parts = [(one.name, sdist.extractfile(one)) for one in sdist.getmembers()]
        return {os.fspath(name): file.read() for name, file in parts if file}
