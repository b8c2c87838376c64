"""The wheel of this tree, built and installed into a folder without a network; skipped where it cannot be built."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sim", "workloads", "experiments")
LEAST = 77                                             # setuptools, as pyproject.toml wants to build with
NOT_BUILT = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")


def copied(folder: Path, *more: str) -> Path:
    """What a wheel is made of, in a folder of its own: building leaves nothing in the tree. And ``more``, files or folders."""
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE", *more):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=NOT_BUILT)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def why_not() -> str | None:
    """Why no wheel can be built here; None if one can."""
    if importlib.util.find_spec("pip") is None:
        return "no pip here to build a wheel with"
    try:
        found = metadata.version("setuptools")
    except metadata.PackageNotFoundError:
        return "no setuptools here to build a wheel with"
    return None if int(found.split(".")[0]) >= LEAST else f"setuptools {found} is too old to build a wheel with"


def installed_wheel(folder: Path) -> Path:
    """Build it, install it; the folder of its packages, to be put on the path."""
    if reason := why_not():
        if os.environ.get("PAGEDSIM_WHEEL") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    source, wheels, site = copied(folder / "source"), folder / "wheels", folder / "site"
    quiet = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    still = ["--no-deps", "--no-index"]
    subprocess.run([*quiet, "wheel", *still, "--no-build-isolation", "-w", str(wheels), str(source)], check=True, timeout=300)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*quiet, "install", *still, "--target", str(site), str(wheel)], check=True, timeout=300)
    return site
