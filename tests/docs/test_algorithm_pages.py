"""The site: a page for every algorithm, made of its docstring; every page reachable; nothing loaded from elsewhere."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from placewright.bounds import BOUNDS, PROOFS
from placewright.solvers import SOLVERS
from tests.docs.blocks import ROOT
from tests.report.chromium import BROWSER, Browser

sys.path.insert(0, str(ROOT / "docs/hooks"))

import algorithm_pages  # type: ignore[import-not-found]
import session_lexer  # type: ignore[import-not-found]
from unbroken import unbroken  # type: ignore[import-not-found]

ALGORITHMS = list(algorithm_pages.algorithms())


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.path)
def test_docstrings_have_what_a_page_needs(algorithm: Any) -> None:
    """Guarantee, complexity, source and when to use it stand in the docstring, each once and none empty."""
    doc = inspect.getdoc(algorithm.documented) or ""
    found, _ = algorithm_pages.labelled(algorithm_pages.sections(doc)[0])
    assert set(found) == set(algorithm_pages.LABELS)
    assert all(len(text) > 3 and text.endswith((".", ")")) for text in found.values())
    for label in algorithm_pages.LABELS:
        assert len(re.findall(rf"^{label}: ", doc, re.MULTILINE)) == 1, label


def test_every_entry_of_the_registries_has_a_page() -> None:
    """As many pages as solvers and bounds, each by a path of its own, and in the navigation."""
    pages = algorithm_pages.pages()
    entries = sum(len(those) for registry in (SOLVERS, BOUNDS, PROOFS) for those in registry.values())
    assert len(pages) == entries + 1
    assert set(paths(algorithm_pages.navigation())) == set(pages)


def test_no_markup_of_docstrings_is_left_on_a_page() -> None:
    """Roles, double back-quotes and commands of formulas have become Markdown and plain text."""
    for path, text in algorithm_pages.pages().items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        assert re.findall(r":\w+:`|``|\.\. math|\\[a-z]+", prose) == [], path


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (r"\lambda_c \ge 0", "λ_c ≥ 0"),
        (r"\max_{i < j}\{x_i\}", "max_(i < j){x_i}"),
        (r"\pi(V) \le \sum_c n_c", "π(V) ≤ Σ_c n_c"),
    ],
)
def test_formulas_are_written_in_plain_text(formula: str, text: str) -> None:
    """Worked by hand."""
    assert algorithm_pages.plain(formula) == text


def test_numbers_in_tables_stay_with_their_units() -> None:
    """Elsewhere lines break as they like, and words in code are left as they are."""
    text = "| a 2 s b | 1.5 % | 3 GiB/s |\nin 2 s\n| `2 s` | 3 sets |"
    assert unbroken(text) == "| a 2\u00a0s b | 1.5\u00a0% | 3\u00a0GiB/s |\nin 2 s\n| `2 s` | 3 sets |"


def test_in_a_session_only_what_is_typed_is_a_command() -> None:
    """A comment that a program printed is output, and no word of it is a keyword of a shell."""
    found = session_lexer.Session().get_tokens("$ placewright export a\n# in what it printed\n")
    assert [(str(kind), text) for kind, text in found] == [
        ("Token.Generic.Prompt", "$ "),
        ("Token.Text", "placewright export a\n"),
        ("Token.Generic.Output", "# in what it printed\n"),
    ]


def paths(navigation: Any) -> Iterator[str]:
    """Every page that a navigation names."""
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        yield from paths(list(navigation.values()))
    else:
        for entry in navigation:
            yield from paths(entry)


def test_every_page_is_in_the_navigation() -> None:
    """Each Markdown file of ``docs`` stands there once, and nothing else but what is made when the site is built."""
    listed = list(paths(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    written = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == written | {"algorithms/index.md", "testbed.md"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The site, and what its building warned of."""
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    site = tmp_path_factory.mktemp("built") / "site"
    warned: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mkdocs").addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.chdir(ROOT)
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site)))
    logging.getLogger("mkdocs").removeHandler(handler)
    return site, warned


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(built: tuple[Path, list[str]]) -> None:
    """Links and anchors hold; every script, style and picture of a page is a file of the site."""
    site, warned = built
    assert warned == []
    pages = list(site.rglob("*.html"))
    assert len(pages) > 90
    shown = (site / "tutorials/two-gpus.html").read_text()
    assert 'class="go"># rank 0' in shown and 'class="nb">' not in shown
    for page in pages:
        loaded = re.findall(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"?([^\" >]+)", page.read_text())
        assert [url for url in loaded if re.match(r"(?:https?:)?//", url)] == [], page


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: chromium or google-chrome")
def test_the_search_works_without_a_server_and_pages_fit_a_small_screen(
    built: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """A page opened as a file finds the word in its address, asks for nothing but files, and complains of nothing."""
    browser = Browser(tmp_path)
    try:
        for page in ("index.html", "algorithms/max-load/ideal-dp.html", "makespan.html"):
            browser.open(built[0] / page, width=390)
            assert browser.value("document.documentElement.scrollWidth") == 390, page
        browser.call("Page.navigate", url=f"{(built[0] / 'index.html').as_uri()}?q=ideal")
        found = None
        for _ in range(1000):
            if found:
                break
            time.sleep(0.05)
            found = browser.value("document.querySelector('.md-search-result__item h1')?.textContent")
        assert found and "ideal" in found
        assert [url for url in browser.requests if not url.startswith(("file:", "data:", "about:"))] == []
        assert browser.complaints == []
    finally:
        browser.close()
