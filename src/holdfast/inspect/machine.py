"""What the machine below a store is like: versions, the file system it lies on, the room that is left."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

PACKAGES: Final = ("apsw", "msgspec", "ormsgpack", "blake3", "psycopg", "psycopg-pool", "langgraph", "click", "rich")
NETWORK: Final = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.glusterfs",
        "lustre", "gpfs", "beegfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "davfs", "virtiofs",
        "vboxsf", "drvfs",
    }
)  # fmt: skip
"""File systems on which locks or syncs may mean less than they say."""


def versions() -> dict[str, str]:
    """Python, Holdfast and the packages it uses, as far as they are there."""
    from holdfast import __version__

    found = {
        "holdfast": __version__,
        "python": platform.python_version(),
        "system": f"{sys.platform} {os.uname().release}",
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def file_system_of(path: str, mounts: str = "/proc/self/mounts") -> str:
    """The kind of file system a path lies on; empty if the system does not tell."""
    try:
        text = Path(mounts).read_text("utf-8", "replace")
    except OSError:
        return ""
    place = os.path.realpath(path)
    found, longest = "", -1
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        at = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = place == at or place.startswith(at.rstrip("/") + "/")
        if inside and len(at) >= longest:  # of two mounts in one place the later counts
            found, longest = fields[2], len(at)
    return found


def free_bytes(path: str) -> int | None:
    """How much room there is on the disk of a path; None if the system does not tell."""
    place = path if os.path.exists(path) else os.path.dirname(path) or "."
    try:
        stat = os.statvfs(place)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize


def sized(count: int) -> str:
    """Bytes for people."""
    number, units = float(count), ["bytes", "KB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{count} bytes" if units[0] == "bytes" else f"{number:.1f} {units[0]}"
