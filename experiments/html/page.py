"""A page from a template: everything that users name is escaped, and what scripts read is JSON they can hold exactly.

    templates/base.html       the frame of every page: title, style, body, the exact command and versions
    templates/NAME.html       one page, which fills the frame
    templates/style.css       colours (light, dark, print), type, tables
    data block                <script type="application/json">: numbers that JavaScript would round are refused

Templates escape by default (Jinja2's autoescape); a value they do not know is an error, not an empty place.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from experiments.output import write_text
from experiments.version import VERSION

MOST_EXACT = 2**53                                     # JavaScript's numbers are doubles
LIBRARIES = ("numpy", "simpy", "matplotlib")
_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(template: str, **values: Any) -> str:
    """The text of a page.

    Parameters
    ----------
    template : str
        Name of a file in ``templates``.
    **values
        What it shows; text is escaped, `markupsafe.Markup` is not.

    Raises
    ------
    jinja2.UndefinedError
        If the template wants a value that is not given.

    >>> "&lt;b&gt;" in render("base.html", title="<b>", provenance=provenance(["compare"]))
    True
    """
    return _environment().get_template(template).render(**values)


def write_page(path: str, text: str) -> None:
    """A page into a file that appears only when it is complete; bytes of file names that are no letters are shown as escapes."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    write_text(path, lambda file: file.write(shown) and None)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(loader=PackageLoader("experiments.html", "templates"), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    made.globals["source"] = _source
    return made


def _source(name: str) -> Markup:
    """A style sheet or script of ``templates``, as it is: it is ours."""
    loader = _environment().loader
    assert loader is not None
    return Markup(loader.get_source(_environment(), name)[0])


def data_block(name: str, document: Any) -> Markup:
    """Data for the scripts of a page: ``JSON.parse(document.getElementById(name).textContent)``.

    Raises
    ------
    ValueError
        If it has a whole number that JavaScript would round (beyond 2**53: pass it as text), or one that is not finite.

    >>> str(data_block("rows", {"label": "</script>"}))
    '<script type="application/json" id="rows">{"label":"\\\\u003c/script\\\\u003e"}</script>'
    """
    _check(document)
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for letter, written in _IN_SCRIPT.items():
        text = text.replace(letter, written)
    return Markup('<script type="application/json" id="{}">').format(name) + Markup(text) + Markup("</script>")


def _check(value: Any) -> None:
    if isinstance(value, int) and abs(value) > MOST_EXACT:
        raise ValueError(f"{value:,} is beyond 2**53, which JavaScript would round: pass it as text")
    if isinstance(value, Mapping):
        for name, one in value.items():
            _check(name)
            _check(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _check(one)


def picture(png: bytes, alt: str) -> Markup:
    """An image inside the page.

    Parameters
    ----------
    png : bytes
    alt : str
        What it shows, for who cannot see it.

    >>> str(picture(b"x", 'a "pool"'))
    '<img src="data:image/png;base64,eA==" alt="a &#34;pool&#34;">'
    """
    return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(base64.b64encode(png).decode(), alt)


def provenance(words: Sequence[str]) -> dict[str, str]:
    """What made a page: the exact command, and the versions of pagedsim, Python and its libraries.

    Parameters
    ----------
    words : sequence of str
        Of the command line, ``pagedsim`` left out.

    >>> provenance(["compare", "my trace.csv"])["command"]
    "pagedsim compare 'my trace.csv'"
    """
    versions = [f"pagedsim {VERSION}", f"Python {platform.python_version()}"]
    versions += [f"{name} {metadata.version(name)}" for name in LIBRARIES]
    return {"command": " ".join(["pagedsim", *map(_for_a_shell, words)]), "versions": ", ".join(versions)}


def _for_a_shell(word: str) -> str:
    r"""A word as a shell takes it; bytes that are no letters stand as escapes.

    >>> print(_for_a_shell("my trace.csv"), _for_a_shell("\udcff\udcfe bad.csv"), _for_a_shell("it's \udcff"))
    'my trace.csv' $'\xff\xfe bad.csv' $'it\'s \xff'
    """
    if word.isprintable():
        return shlex.quote(word)
    escaped = "".join(letter if letter.isprintable() and letter not in "\\'" else f"\\{letter}" if letter in "\\'" else
                      "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter)) for letter in word)
    return f"$'{escaped}'"
