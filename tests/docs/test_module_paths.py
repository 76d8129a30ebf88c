"""docs/architecture.md and CONTRIBUTING.md name modules that exist and layers that the import rules enforce."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "holdfast"
DOCUMENTS = (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")
_TOP = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}


def names(document: Path) -> list[str]:
    """Return what a document sets in code type."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.DOTALL))


def exists(dotted: str) -> bool:
    """Return whether `store.port` or `store.port.StorePort` is a module, or a name of one."""
    parts = dotted.removeprefix("holdfast.").split(".")
    for count in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:count])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            found: object = importlib.import_module(".".join(("holdfast", *parts[:count])))
            for name in parts[count:]:
                found = getattr(found, name, None)
            return found is not None
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_module_named_in_a_document_exists(document: Path) -> None:
    dotted = [name for name in names(document) if re.fullmatch(r"(holdfast\.)?[a-z_]+(\.\w+)+", name)]
    modules = [name for name in dotted if name.removeprefix("holdfast.").split(".")[0] in _TOP and name[-3:] != ".py"]
    assert [name for name in modules if not exists(name)] == []
    assert len(modules) > (20 if document.name == "architecture.md" else 0)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_named_in_a_document_exists(document: Path) -> None:
    paths = [name for name in names(document) if re.fullmatch(r"[\w.-]+(/[\w.-]+)+|\w+\.py", name)]
    assert [name for name in paths if not (ROOT / name).exists() and not (PACKAGE / name).exists()] == []


def test_the_layers_of_the_architecture_are_those_of_the_import_rules() -> None:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(rule["layers"] for rule in rules if rule["type"] == "layers")
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    block = re.findall(r"```text\n(.*?)```", text, re.DOTALL)[0]
    drawn = [re.split(r" {2,}", line)[0].strip() for line in block.splitlines()]
    assert drawn == [layer.replace("holdfast.", "") for layer in layers]
