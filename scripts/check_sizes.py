"""Holds files and functions to a size a reader can take in."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70


def too_large(path: Path) -> list[str]:
    """What in the file is larger than it should be."""
    text = path.read_text("utf-8")
    lines = text.count("\n")
    found = [f"{path}: {lines} lines, at most {FILE_LINES_MAX}"] if lines > FILE_LINES_MAX else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            span = (node.end_lineno or node.lineno) - node.lineno + 1
            if span > FUNCTION_LINES_MAX:
                found.append(f"{path}:{node.lineno} {node.name}: {span} lines, at most {FUNCTION_LINES_MAX}")
    return found


def main() -> int:
    root = Path(__file__).parent.parent
    paths = [path for folder in ("src", "tests", "bench", "scripts") for path in sorted((root / folder).rglob("*.py"))]
    found = [problem for path in paths for problem in too_large(path.relative_to(root))]
    sys.stderr.write("".join(f"{problem}\n" for problem in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
