"""The documentation: links lead somewhere, nothing is left to fill in, and its code runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_nothing_is_left_to_fill_in(page):
    assert not re.findall(r"@[A-Z]+@|TODO|FIXME", page.read_text())


def test_the_code_of_the_tutorial_runs(capsys):
    text = (ROOT / "docs" / "tutorial_collective.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    exec("\n".join(blocks), {})
    assert "cycles" in capsys.readouterr().out
