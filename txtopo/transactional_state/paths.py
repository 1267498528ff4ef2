"""Topology ids and chroots as paths of nodes."""

from __future__ import annotations

import re

from txtopo.errors import ConfigError

ROOT = "/txtopo"
"""Where topologies live when the hosts name no chroot."""

ID_CHARACTERS_MAX = 255

# What ZooKeeper refuses in a path: control characters, surrogates, private use, specials; and what
# is made of surrogates in UTF-16, in which it counts.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff/]")


def check_topology_id(topology_id: str) -> str:
    """Return the id if it can be the name of a node.

    Raises:
        ConfigError: It cannot; choose another id.
    """
    refused = _REFUSED.search(topology_id)
    if (
        refused
        or ".." in topology_id
        or topology_id in ("", ".")
        or len(topology_id) > ID_CHARACTERS_MAX
    ):
        raise ConfigError(
            f"topology id cannot be used as a path; got {topology_id[:80]!r}; expected 1 to "
            f"{ID_CHARACTERS_MAX} characters without '/', '..' and control characters",
            topology_id=topology_id,
        )
    return topology_id


def split_chroot(hosts: str) -> tuple[str, str]:
    """Split ``"host:port,host:port/chroot"`` into servers and chroot, ``/txtopo`` if none.

    Raises:
        ConfigError: The hosts or the chroot cannot be read.
    """
    servers, _, chroot = hosts.partition("/")
    if not servers or not all(server.strip() for server in servers.split(",")):
        raise ConfigError(
            f"zookeeper hosts cannot be read; got {hosts!r}; expected 'host:port,host:port/chroot'"
        )
    names = chroot.strip("/").split("/") if chroot.strip("/") else []
    if any(name in ("", ".", "..") or _REFUSED.search(name) for name in names):
        raise ConfigError(
            f"zookeeper chroot cannot be read; got {'/' + chroot!r}; expected '/name/name'"
        )
    return servers, "".join(f"/{name}" for name in names) or ROOT
