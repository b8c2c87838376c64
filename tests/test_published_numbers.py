"""The published numbers, typed a second time, and looked up in the table of papers where it is here."""

import os
from pathlib import Path

import pytest

from experiments.paper import blocksize, concurrency, fig2, fig13, fig15, prefix, vattention, waste

TYPED = {
    "fig2": (fig2.PUBLISHED, {"Orca (Max)": (20.4, 13.3, 57.3, 8.9), "Orca (Pow2)": (26.8, 17.9, 13.6, 41.6),
                              "Orca (Oracle)": (38.2, 25.2, None, 36.6), "vLLM": (96.3, None, None, None)}),
    "fig13": (fig13.PUBLISHED, {"ShareGPT": {"Orca (Max)": 7.0, "Orca (Pow2)": 9.81, "Orca (Oracle)": 13.62, "vLLM": 30.42},
                                "Alpaca": {"Orca (Max)": 7.0, "Orca (Pow2)": 43.24, "Orca (Oracle)": 72.75, "vLLM": 132.44}}),
    "fig15": (fig15.PUBLISHED, {"ShareGPT": {"parallel sampling": (16.2, None, 30.5), "beam search": (44.3, None, 66.3)},
                                "Alpaca": {"parallel sampling": (6.09, 8.53, 9.79), "beam search": (37.56, 53.13, 55.16)}}),
    "blog": (fig15.BLOG_UP_TO, 55.0),
    "means": ((fig13.OUTPUT_MEAN, fig13.ALPACA_PROMPT_MEAN), ({"ShareGPT": 337.99, "Alpaca": 58.45}, 19.31)),
    "prefix": ((prefix.PREFIX_TOKENS, prefix.PUBLISHED), ({"1-shot": 80, "5-shot": 341}, {"1-shot": 1.67, "5-shot": 3.58})),
    "waste": ((waste.BEFORE, waste.MOST_WASTE), ((60.0, 80.0), 4.0)),
    "waste of the pool": ({label: round(value, 1) for label, value in waste.PUBLISHED.items()},
                          {"Orca (Max)": 79.6, "Orca (Pow2)": 73.2, "Orca (Oracle)": 61.8, "vLLM": 3.7}),
    "blocksize": (blocksize.PUBLISHED, {"ShareGPT": (16, 128), "Alpaca": (16, 32)}),
    "concurrency": (tuple(concurrency.PUBLISHED.values()), ((2.7, 8.0), (1.7, 2.7), (2.0, 4.0))),
    "quoted": ({name: times for name, (times, _) in concurrency.QUOTED.items()},
               {"Hugging Face": 24.0, "FasterTransformer": 22.0, "TGI": 3.5}),
    "vattention": ({key: tuple(pages.values()) for key, pages in vattention.PUBLISHED.items()},
                   {("Yi-6B", 1): (64, 2048), ("Llama-3-8B", 1): (32, 1024), ("Llama-3-8B", 2): (64, 2048)}),
}
IN_THE_TABLE = ["token 20.4 / reservation 13.3 / internal 57.3 / external&other 8.9", "26.8 / 17.9 / 13.6 / 41.6",
                "38.2 / 25.2 / - / 36.6", "96.3", "Max 7.00, Pow2 9.81, Oracle 13.62, vLLM 30.42", "7.00, 43.24, 72.75, 132.44",
                "6.09 / 8.53 / 9.79", "37.56 / 53.13 / 55.16", "16.2-30.5", "44.3-66.3", "up to 55 %", "337.99", "19.31", "58.45",
                "80-token 1-shot 1.67x, 341-token 5-shot 3.58x", "60-80 %; vLLM under 4 %", "16-128", "16-32", "1.7-2.7x Oracle",
                "2.7-8x Max", "22x FasterTransformer", "24x HF", "3.5x TGI"]


@pytest.mark.parametrize("name", TYPED)
def test_the_code_has_what_was_published(name):
    ours, typed = TYPED[name]
    assert ours == typed


def test_the_table_of_papers_has_them_too():
    shared = os.environ.get("PAGEDSIM_SHARED")
    table = Path(shared or "../shared", "facts", "papers.md")
    if not table.exists():
        pytest.skip("no facts/papers.md (set PAGEDSIM_SHARED)")
    text = table.read_text(encoding="utf-8")
    assert [phrase for phrase in IN_THE_TABLE if phrase not in text] == []
