"""A page read back with the standard library's parser: every tag is closed, tables are cells, what asks a network is found."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "input", "hr", "wbr"}
ASKING = {"src", "href", "srcset", "action", "poster", "data", "xlink:href", "background", "formaction"}


class Page(HTMLParser):
    """A page in parts.

    Attributes
    ----------
    tags : list of (name, attributes)
    text : str
        Everything a reader sees, with single spaces.
    tables : dict of name -> list of rows of cells
        By the label of the box they are in.
    outline : list of (depth, text)
        Items of lists, with how many lists they are in.
    """

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.tables, self.outline = [], {}, []
        self._open, self._words, self._label, self._cell = [], [], None, None
        self.feed(text)
        self.close()
        assert self._open == [], f"not closed: {self._open}"
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), f"an attribute twice in {tag}"
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self._open.append(tag)
        if attributes.get("role") == "region":
            self._label = attributes["aria-label"]
        if tag == "table":
            self.tables[self._label] = []
        if tag == "tr":
            self.tables[self._label].append([])
        if tag in ("th", "td"):
            self._cell = []
        if tag == "br" and self._cell is not None:
            self._cell.append("\n")
        if tag == "li":
            self.outline.append([self._open.count("ul") + self._open.count("ol"), ""])

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert tag not in VOID and self._open and self._open[-1] == tag, f"{tag} closes {self._open[-1:]}"
        self._open.pop()
        if tag in ("th", "td"):
            self.tables[self._label][-1].append("".join(self._cell))
            self._cell = None

    def handle_data(self, data):
        if "style" in self._open or "script" in self._open:
            return
        self._words.append(data)
        if self._cell is not None:
            self._cell.append(data)
        if "li" in self._open:
            self.outline[-1][1] += data

    def row(self, table, label):
        """The cells behind the first row of that name."""
        return next(row[1:] for row in self.tables[table] if row[0] == label)

    def of(self, tag):
        """Attributes of all elements of a name."""
        return [attributes for name, attributes in self.tags if name == tag]

    def asks(self):
        """Addresses that a browser would fetch; what is inside the page is none."""
        found = [value for _, attributes in self.tags for name, value in attributes.items() if name in ASKING]
        return [value for value in found if not value.startswith(("data:", "#"))]
