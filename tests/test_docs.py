"""The documentation: links lead somewhere, nothing is left to fill in, and its code runs."""

import inspect
import re
from operator import attrgetter
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
import yaml

import wafer_jax
from wafer_jax.models import families

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_nothing_is_left_to_fill_in(page):
    assert not re.findall(r"@[A-Z]+@|TODO|FIXME", page.read_text())


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda p: p.name)
def test_public_names_exist(page):
    for name in set(re.findall(r"\bwj((?:\.\w+)+)", page.read_text())):
        attrgetter(name[1:])(wafer_jax)


@pytest.mark.parametrize("package", [wafer_jax, wafer_jax.models, wafer_jax.runtime])
def test_what_is_public_says_what_it_is(package):
    public = {name: getattr(package, name) for name in package.__all__}
    described = {
        name: inspect.getdoc(value)
        for name, value in public.items()
        if inspect.ismodule(value) or callable(value)
    }
    assert len(described) > 1
    # A dataclass without a docstring gets its signature for one.
    bare = [name for name, text in described.items() if not text or text.startswith(f"{name}(")]
    assert not bare


@pytest.mark.parametrize(
    ("page", "blocks", "printed"),
    [
        ("tutorial_collective.md", 5, "cycles"),
        ("long_runs.md", 5, "saved with mesh [2, 16]"),
        ("models.md", 6, "below 1e-5: True"),
    ],
)
def test_the_code_of_a_page_runs(page, blocks, printed, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(families, "FAMILIES", dict(families.FAMILIES))  # a page adds one
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert len(found) == blocks
    exec("\n".join(found), {})
    assert printed in capsys.readouterr().out


def test_the_page_on_debugging_shows_what_its_code_prints(capsys, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "debugging.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    assert len(blocks) == 8
    names: dict = {}
    for code, shown in blocks:
        exec(code, names)
        assert capsys.readouterr().out == shown
    plt.close("all")
    assert {p.name for p in tmp_path.iterdir()} == {"timeline.png", "ktree.json", "deadlock.png"}
    assert "<img" in names["film"]


def test_the_sweep_of_the_page_is_the_shipped_one():
    (shown,) = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs" / "long_runs.md").read_text(), re.DOTALL
    )
    shipped = (ROOT / "configs" / "experiments" / "ktree.yaml").read_text()
    assert yaml.safe_load(shown) == yaml.safe_load(shipped)
