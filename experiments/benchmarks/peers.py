"""The neighbours: each in a virtual environment of its own that can be thrown away, never among our dependencies."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# A step of its own: where pip is told of PyTorch's builds for CPUs (PIP_EXTRA_INDEX_URL), it takes one of those.
TORCH = ("torch==2.13.0",)
RECORDER = Path(__file__).resolve().parents[2] / "tests" / "oracle" / "requirements.txt"


@dataclass(frozen=True)
class Peer:
    """One neighbour.

    Parameters
    ----------
    name : str
        Its folder below that of all peers.
    title : str
        Its name in the tables.
    module : str
        What its Python must be able to import.
    requirements : tuple of tuple of str
        Arguments of each ``pip install``, one after the other.
    """

    name: str
    title: str
    module: str
    requirements: tuple[tuple[str, ...], ...]

    def python(self, folder: str) -> Path:
        """Where its Python is."""
        return Path(folder).absolute() / self.name / "bin" / "python"

    def absent(self, folder: str | None) -> str | None:
        """Why it cannot run, or None.

        >>> PEERS["vllm"].absent(None)
        'no --peers folder'
        >>> PEERS["vllm"].absent("nowhere")
        'not installed'
        """
        if folder is None:
            return "no --peers folder"
        if not self.python(folder).exists():
            return "not installed"
        command = [self.python(folder), "-c", f"import {self.module}"]
        try:
            tried = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"its Python cannot be run: {error.strerror}"
        return None if tried.returncode == 0 else f"cannot be imported: {last_line(tried.stderr)}"

    def install(self, folder: str) -> str | None:
        """Make its environment; why that failed, or None."""
        pip = [str(self.python(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        venv = [sys.executable, "-m", "venv", str(Path(folder) / self.name)]
        for command in (venv, *([*pip, *arguments] for arguments in self.requirements)):
            tried = subprocess.run(command, capture_output=True, text=True, check=False)
            if tried.returncode != 0:
                return f"cannot be installed: {last_line(tried.stderr)}"
        return None


PEERS = {peer.name: peer for peer in (
    Peer("libcachesim", "libCacheSim 0.3.5", "libcachesim", (("libcachesim==0.3.5",),)),
    Peer("dynamo", "Dynamo 1.6.1", "dynamo.replay.api",
         (("--no-deps", "ai-dynamo-runtime==1.6.1", "ai-dynamo==1.6.1", "typing_extensions"),)),
    Peer("vllm", "vLLM 0.33", "vllm", (("--no-deps", *TORCH), ("--no-deps", "-r", str(RECORDER)))))}


def reasons(folder: str | None, install: bool) -> dict[str, str | None]:
    """For every peer why it is left out, or None; those that are absent are installed first if that is wanted."""
    found = {name: peer.absent(folder) for name, peer in PEERS.items()}
    for name, peer in PEERS.items():
        if found[name] is not None and install and folder is not None:
            found[name] = peer.install(folder) or peer.absent(folder)
    return found


def last_line(text: str) -> str:
    """The last line that says something.

    >>> last_line("Traceback\\nImportError: no\\n\\n")
    'ImportError: no'
    """
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")
