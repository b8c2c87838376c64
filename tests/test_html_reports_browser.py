"""Reports in a real browser: no complaint, no request, nothing wider than a small screen but inside its box, light and dark."""

from __future__ import annotations

import os

import pytest
from browser import opened, too_faint
from cli_run import mooncake

from experiments import reproduce
from experiments.cli import main

POOL = ("--num-gpu-blocks-override", "200", "--step-time", "constant:10ms")
PAGES = {"compare": "compare.html", "prefix": "prefix.html", "reproduce": "out/reproduction.html", "sweep": "swept/report.html",
         "plan": "plan.html"}
SCENARIO = "num-gpu-blocks-override = 200\nlimit = 40\n# <script>document.title = 'hit'</script>\n[sweep]\n" \
    "max-num-seqs = [2, 8]\nrate = [1, 2]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, browser):
    """A page of each command, for a trace whose name is markup."""
    made, before = tmp_path_factory.mktemp("reports"), os.getcwd()
    os.chdir(made)
    try:
        rows = [(100 * i, 48 + 16 * (i % 2), 5 + i % 4, [1, 2, 3 + i % 4, *([10 + i] * (i % 2))]) for i in range(60)]
        trace = mooncake(made, rows, "<script>document.title = 'hit'<&.jsonl").name
        assert main(["compare", trace, *POOL, "--html", "compare.html", "-q"]) == 0
        assert main(["prefix", trace, *POOL, "--html", "prefix.html", "-q"]) == 0
        assert main(["plan", "--gpu", "L4", "--html", "plan.html", "-q", "--", "vllm", "serve", "meta-llama/Llama-3.3-70B"]) == 0
        (made / "s.toml").write_text(SCENARIO)
        assert main(["sweep", "s.toml", "--out", "swept", "--jobs", "1", "-q"]) == 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reproduce, "EXPERIMENTS", {name: reproduce.EXPERIMENTS[name] for name in ("seeds", "sharing")})
            assert main(["reproduce", "all", "--limit", "30", "--out", "out", "-q"]) == 0
    finally:
        os.chdir(before)
    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_report_fits_every_screen(browser, folder, name, width, scheme):
    with opened(browser, folder / PAGES[name], width, scheme) as page:
        assert page.play.evaluate("document.documentElement.scrollWidth") == width
        assert page.play.evaluate("[...document.images].every((one) => one.complete && one.naturalWidth > 500)")
        assert too_faint(page) == []
        wide = page.play.evaluate("[...document.querySelectorAll('.scroll')].some((box) => box.scrollWidth > box.clientWidth)")
        assert wide == (width == 400)
        assert page.play.title() != "hit"


@pytest.mark.parametrize("name", PAGES)
def test_a_report_fits_paper(browser, folder, name):
    with opened(browser, folder / PAGES[name], 720, "dark") as page:
        page.play.emulate_media(media="print")
        assert page.play.evaluate("document.documentElement.scrollWidth") == 720
        assert too_faint(page) == []


def test_bars_are_as_wide_as_their_shares(browser, folder):
    with opened(browser, folder / "compare.html") as page:
        said = page.play.evaluate("""() => [...document.querySelectorAll(".bar")].map((bar) => [
            bar.querySelector("svg").clientWidth,
            ...[...bar.querySelectorAll("rect")].map((one) => one.getBoundingClientRect().width)])""")
        assert len(said) == 5
        for whole, *parts in said:
            assert sum(parts) == pytest.approx(whole, abs=0.1)


def test_links_of_the_reproduction_lead_to_its_parts(browser, folder):
    with opened(browser, folder / PAGES["reproduce"]) as page:
        page.play.click("a[href='#seeds']")
        assert page.play.evaluate("location.hash") == "#seeds"
        assert abs(page.play.evaluate("document.getElementById('seeds').getBoundingClientRect().top")) < 2
