"""A file that is read at once, and how much of it at most: a device without end is no reason to run out of memory."""

from __future__ import annotations

import os

from workloads.messages import show_path
from workloads.request import InputError

MIB = 1 << 20


def bytes_of(path: str | os.PathLike[str], most_mib: int) -> bytes:
    """All of a file.

    Parameters
    ----------
    path : str or PathLike
    most_mib : int
        More than so many MiB are refused, after that many are read.

    Raises
    ------
    InputError
        If it is longer.
    OSError, ValueError
        If it cannot be read, or the name is none: who asks knows what to say of it.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"{}"); file.flush()
    ...     bytes_of(file.name, 1)
    b'{}'
    """
    with open(path, "rb") as file:
        data = file.read(most_mib * MIB + 1)
    if len(data) > most_mib * MIB:
        raise InputError(f"{show_path(os.fspath(path))}: longer than {most_mib} MiB")
    return data
