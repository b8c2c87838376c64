"""Figures inside a page: drawn as files are, kept as bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from experiments.html.page import picture


def drawn_picture(draw: Callable[[str], object], alt: str) -> Markup:
    """A figure as an image of the page.

    Parameters
    ----------
    draw : callable
        Draws it into the file of the path it is given, which ends in .png.
    alt : str
        What it shows, for who cannot see it.
    """
    with tempfile.TemporaryDirectory(prefix="pagedsim-") as folder:
        path = Path(folder, "figure.png")
        draw(str(path))
        return picture(path.read_bytes(), alt)
