"""The source tree as the guards see it: each module's path, text and imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "omnigraph"


@dataclass(frozen=True)
class Module:
    """One source file, named by its path below `src/omnigraph`."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree. Several rules look at them, and to walk the tree takes longer than a rule."""
        return tuple(ast.walk(self.tree))

    @property
    def is_init(self) -> bool:
        return PurePosixPath(self.path).name == "__init__.py"

    @property
    def package(self) -> str:
        """The first folder, or the file's own name at the top: `lang`, `errors`, `__init__`."""
        first = PurePosixPath(self.path).parts[0]
        return first.removesuffix(".py")


@dataclass(frozen=True)
class Import:
    """One imported module, and whether it is imported the moment its importer is."""

    name: str
    line: int
    lazy: bool

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package, read and parsed once for all rules."""
    return tuple(
        Module(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    )


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """Every absolute import, `from a import b` as `a.b`, dynamic ones with a literal name included."""
    return tuple(_imports(module.tree, lazy=False))


def _imports(node: ast.AST, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import():
                for alias in child.names:
                    yield Import(alias.name, child.lineno, lazy)
            case ast.ImportFrom(module=str(name), level=0):
                for alias in child.names:
                    yield Import(f"{name}.{alias.name}", child.lineno, lazy)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if _is_dynamic_import(func):
                yield Import(name, child.lineno, lazy)
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            # Never executed, so it costs nothing when the module is imported.
            for statement in child.body:
                yield from _imports(ast.Module([statement], []), lazy=True)
            for statement in child.orelse:
                yield from _imports(ast.Module([statement], []), lazy=lazy)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, lazy or inside)


def _is_dynamic_import(func: ast.expr) -> bool:
    match func:
        case ast.Name(id="__import__" | "import_module"):
            return True
        case ast.Attribute(attr="import_module"):
            return True
    return False


def _is_type_checking(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
    return False
