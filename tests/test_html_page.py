"""Pages stand alone, escape what users name, and give scripts only numbers they can hold."""

from __future__ import annotations

import json
import re

import pytest
from jinja2 import UndefinedError

from experiments.html.page import data_block, provenance, render, write_page

HOSTILE = '</script><script>alert("1")</script><img src=x onerror=alert(1)>\u2028'


def page(title):
    return render("base.html", title=title, provenance=provenance(["compare", title]))


def test_what_users_name_is_text():
    text = page(HOSTILE)
    assert "<script>alert" not in text and "<img" not in text
    assert "&lt;script&gt;alert(&#34;1&#34;)" in text


def test_a_page_asks_nothing_of_the_network():
    assert re.findall(r"https?://|//cdn|@import|url\(", page("compare")) == []


def test_data_come_back_and_cannot_end_the_script():
    document = {"label": HOSTILE, "rows": [1, 2.5, None, True, 2**53, -(2**53)]}
    text = str(data_block("rows", document))
    inside = re.fullmatch(r'<script type="application/json" id="rows">(.*)</script>', text, re.S)[1]
    assert "<" not in inside and "\u2028" not in inside
    assert json.loads(inside) == document


TOO_LARGE = [[2**53 + 1], {"a": {"b": -(2**53) - 1}}, {"a": (1, [2**60])}, {2**54: 1}, float("nan"), [float("inf")]]


@pytest.mark.parametrize("document", TOO_LARGE)
def test_numbers_that_javascript_would_round_are_refused(document):
    with pytest.raises(ValueError, match=r"beyond 2\*\*53|not JSON compliant"):
        data_block("rows", document)


def test_a_value_that_is_missing_is_no_empty_place():
    with pytest.raises(UndefinedError, match="provenance"):
        render("base.html", title="compare")


def test_a_page_appears_whole(tmp_path):
    write_page(str(tmp_path / "page.html"), page("pool"))
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>") and len(list(tmp_path.iterdir())) == 1
