"""The field's own words: private vocabulary that must not come back."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRIVATE_WORDS = {
    r"\bturn(s|ed|ing)?\b": "rotate, rotated",
    r"\b(quarter|half)[- _]turns?\b": "rotation by 90 or 180 degrees",
    r"\bjudg\w*": "evaluate, score",
    r"\bappetite\b": "peak memory",
    r"\bwish(es)?\b": "options",
    r"\binvented\b": "spurious",
    r"taken for whom": "confusion matrix",
    r"\blistened to\b": "attended to",
    r"\bforgotten\b": "activation checkpointing",
    r"not everybody may see": "confidential",
    r"to the right, to the front": "RAS+",
    r"\bprepar(ed|ation)\b": "preprocessed, preprocessing",
    r"\b\w*(normalis|optimis(?!t|m)|initialis|colour|centre|neighbour|grey)\w*": "American spelling",
}
"""Regular expressions, and what to write instead."""


NAME_OLD_KEYS = {"CHANGELOG.md", "test_config_renames.py", "test_language.py"}
OLD_KEYS = re.compile(r'^    "\w+": "[\w ()]+",$', re.MULTILINE)
"""Lines of the table of renamed configuration keys."""


def files():
    """Everything a person reads: code, tests, pages, presets; not what names the keys of earlier versions."""
    kinds = ("*.py", "*.md", "*.yaml", "*.html", "*.toml", "Makefile")
    inside = [
        file for room in ("src", "tests", "docs", "benchmarks") for kind in kinds for file in (ROOT / room).rglob(kind)
    ]
    every = [*(file for kind in kinds for file in ROOT.glob(kind)), *inside]
    return [file for file in every if file.name not in NAME_OLD_KEYS]


def private_words(text):
    """Each private word in ``text``, with what to write instead."""
    for pattern, better in PRIVATE_WORDS.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield f"{match[0]!r} (write {better})"


def test_no_private_words():
    texts = {str(file.relative_to(ROOT)): OLD_KEYS.sub("", file.read_text()) for file in files()}
    found = {name: list(private_words(text))[:3] for name, text in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}


def test_a_private_word_would_be_seen():
    assert list(private_words("The picture turned, and I return.")) == ["'turned' (write rotate, rotated)"]
    assert len(files()) > 300
