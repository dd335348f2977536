"""The limit of open files of this process: raised as far as the system allows, and reported where it stays too low."""

import resource

NEEDED = 384
"""Descriptors that a node may have open at once: 64 connections of peers, 64 handshakes, 33 connections each of the
page and the feed, dials, pipes and files, and room for connections that are closing."""
_WANTED = 1_024


def raise_limit() -> str:
    """Raise the soft limit of this process. Return a line for the operator if it stays below NEEDED, and else ''."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    highest = _WANTED if hard == unlimited else min(_WANTED, hard)
    if soft != unlimited and soft < highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        soft = highest
    if soft == unlimited or soft >= NEEDED:
        return ""
    return (
        f"this process may open {soft} files, and a node with all its connections needs {NEEDED}: others could keep "
        f"peers from connecting; raise the hard limit (ulimit -Hn {NEEDED})"
    )
