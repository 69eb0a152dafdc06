"""A module imports only from its own layer and lower ones, and never in a circle."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import wafer_jax

PACKAGE = Path(wafer_jax.__file__).parent
LAYERS = [
    ("errors", "arguments", "_quiet_xla", "_version"),
    ("hardware", "plmr"),
    (
        "events",
        "program",
        "validation",
        "jitter",
        "program_file",
        "routes",
        "event_table",
        "blocks",
        "step_spec",
        "lowering",
        "faults",
        "mesh_state",
        "snapshot",
        "segment_builder",
        "thread_builder",
        "builder",
        "diagnosis",
    ),
    ("step", "devices", "windows", "compilation", "execute", "result", "pictures", "views"),
    ("collectives",),
    ("models",),
    ("governance",),
    ("runtime",),
    ("report",),
    ("cli",),
]
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}


def modules() -> dict[str, Path]:
    """Dotted name, without the package's own, to file; the flat public API left out."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if name := ".".join(part for part in parts if part != "__init__"):
            found[name] = path
    return found


def imports(source: str, name: str, is_package: bool, known: set[str]) -> Iterator[tuple[int, str]]:
    """Line and module of every import from this package; those for type checkers left out."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "wafer_jax":
                    yield node.lineno, alias.name.partition(".")[2]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = name.split(".")
                base = base[: len(base) + is_package - node.level]
                base += (node.module or "").split(".") if node.module else []
            else:
                first, *base = (node.module or "").split(".")
                if first != "wafer_jax":
                    continue
            for alias in node.names:
                deeper = ".".join([*base, alias.name])
                yield node.lineno, deeper if deeper in known else ".".join(base)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from statements(child)


def violations(name: str, found: Iterator[tuple[int, str]]) -> list[str]:
    top = name.split(".")[0]
    texts = []
    for line, target in found:
        other = target.split(".")[0]
        if not other:
            texts.append(f"{name}:{line} imports the public API, which stands above everything")
        elif LAYER_OF[other] > LAYER_OF[top]:
            texts.append(f"{name}:{line} (layer {LAYER_OF[top]}) imports {target}")
    return texts


def graph() -> dict[str, list[tuple[int, str]]]:
    files = modules()
    return {
        name: list(imports(path.read_text(), name, path.stem == "__init__", set(files)))
        for name, path in files.items()
    }


def test_every_module_has_a_layer():
    assert {name.split(".")[0] for name in modules()} <= set(LAYER_OF)


def test_imports_point_down():
    found = [text for name, uses in graph().items() for text in violations(name, iter(uses))]
    assert not found, "\n".join(found)


def test_no_import_circles():
    try:
        graphlib.TopologicalSorter(
            {n: {t for _, t in uses} for n, uses in graph().items()}
        ).prepare()
    except graphlib.CycleError as error:
        pytest.fail("import circle: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("import wafer_jax.run", ["run"]),
        ("from wafer_jax.models.dense import DenseModel", ["models.dense"]),
        ("from wafer_jax.models import dense", ["models.dense"]),
        ("from wafer_jax import models, run", ["models", "run"]),
        ("from wafer_jax import WaferError", [""]),
        ("from . import sibling", ["step.sibling"]),
        ("from .sibling import f", ["step.sibling"]),
        ("from ..models import dense", ["models.dense"]),
        ("def f():\n    from wafer_jax.run import run", ["run"]),
        ("if TYPE_CHECKING:\n    from wafer_jax.run import run", []),
        ("import jax\nfrom pathlib import Path", []),
    ],
)
def test_how_imports_are_read(source, targets):
    known = {"run", "models", "models.dense", "step", "step.sibling"}
    found = imports(source, "step.fifo", False, known)
    assert [target for _, target in found] == targets


def test_a_violation_is_seen():
    assert violations("collectives.gemv", iter([(3, "models.dense")]))
    assert violations("execute", iter([(3, "")]))
    assert not violations("models.dense", iter([(3, "models.llama"), (4, "execute")]))
