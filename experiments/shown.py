"""What a report shows, as plain data: lines under labels, sentences and tables of text. A terminal and a page draw them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rich import box
from rich.table import Table
from rich.text import Text

Line = tuple[str, str]
"""A label and a text; with an empty label it goes on with the one before."""


@dataclass(frozen=True)
class Sentence:
    """A sentence, with what hangs on it.

    Parameters
    ----------
    text : str
    under : tuple of Sentence
    indent : int
        How far those are set in, in letters.
    """

    text: str
    under: tuple[Sentence, ...] = ()
    indent: int = 4

    def written(self, at: int = 0) -> Iterator[str]:
        """Line by line.

        >>> list(Sentence("rate 1 -> 2", (Sentence("fp8 brings it back"),), 2).written())
        ['rate 1 -> 2', '  fp8 brings it back']
        """
        yield " " * at + self.text
        for one in self.under:
            yield from one.written(at + self.indent)


@dataclass(frozen=True)
class Section:
    """Rows of a table under a title of their own; an empty title for none.

    Parameters
    ----------
    title : str
    rows : list of tuple of str
        Cells as people read them, units and all.
    """

    title: str
    rows: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class TextTable:
    """A table of text.

    Parameters
    ----------
    columns : tuple of str
        Titles; a line end is where one may be broken.
    words : frozenset of int
        Columns of words rather than numbers, besides those without a title.
    total : bool
        Whether the last row is the sum of those above it.
    sections : list of Section
        Filled by `add_section` and `add_row`.

    Examples
    --------
    >>> made = TextTable(("", "paged"))
    >>> made.add_section("Time")
    >>> made.add_row("whole run (s)", "1.5")
    >>> made.sections
    [Section(title='Time', rows=[('whole run (s)', '1.5')])]
    """

    columns: tuple[str, ...]
    words: frozenset[int] = frozenset()
    total: bool = False
    sections: list[Section] = field(default_factory=list)

    def add_section(self, title: str) -> None:
        """Rows that follow stand under this title."""
        self.sections.append(Section(title))

    def add_row(self, *cells: str) -> None:
        """A row of the last section; a short one leaves its last cells empty."""
        if not self.sections:
            self.add_section("")
        self.sections[-1].rows.append((*cells, *[""] * (len(self.columns) - len(cells))))

    def is_words(self, column: int) -> bool:
        """Whether a column holds words, which stand to the left."""
        return not self.columns[column] or column in self.words

    def is_total(self, row: tuple[str, ...]) -> bool:
        """Whether a row is the sum of those above it."""
        return self.total and row is self.sections[-1].rows[-1]


Titled = tuple[str, TextTable]


def grouped(lines: Iterable[Line]) -> list[tuple[str, list[str]]]:
    """Lines by their labels.

    >>> grouped([("trace", "a.csv"), ("", "3 requests"), ("pool", "9 blocks")])
    [('trace', ['a.csv', '3 requests']), ('pool', ['9 blocks'])]
    """
    made: list[tuple[str, list[str]]] = []
    for label, text in lines:
        if label or not made:
            made.append((label, []))
        made[-1][1].append(text)
    return made


def drawn(table: TextTable, narrow: bool = False) -> Table:
    """The table for a terminal: a blank line before each further section, its rows indented.

    Where it is ``narrow``, titles but the first are broken at a hyphen, which goes.
    """
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for i, name in enumerate(table.columns):
        title = name.replace("-", "\n", 1) if narrow and i else name
        words = table.is_words(i)
        made.add_column(title, justify="left" if words else "right", no_wrap=not (i and words), vertical="bottom")
    for i, section in enumerate(table.sections):
        if i:
            made.add_row()
        if section.title:
            made.add_row(Text(section.title, "bold"))
        for row in section.rows:
            name = f"  {row[0]}" if section.title else row[0]
            made.add_row(name, *row[1:], style="bold" if table.is_total(row) else None)
    return made
