"""Mutants of a file: the same source with one operator, comparison, number or condition changed."""

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.USub: ast.UAdd,
}  # fmt: skip
NAMES = {"clamp_min": "clamp_max", "sum": "mean", "max": "min", "min": "max", "log1p": "log", "double": "float",
         "mT": "data"}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str  # from the root of the package
    line: int
    change: str  # what it was and what it is
    source: str  # of the whole file
    code: str = ""  # the line as it was
    lines: tuple[int, int] = (0, 0)  # of the statement that holds the change, the first and the last; of its head, if
    # the statement holds others
    number: int = 1  # among the same changes of the same line

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}: {self.change}" + (f" ({self.number})" if self.number > 1 else "")


def mutants_of(root: Path, file: Path) -> list[Mutant]:
    """Return all mutants of a file; annotations, docstrings, messages and class variables in capitals stay."""
    text = file.read_text(encoding="utf-8")
    found: list[Mutant] = []
    same: Counter[tuple[int, str]] = Counter()
    statements = _statements(ast.parse(text))
    for place in range(len(_places(ast.parse(text)))):
        tree = ast.parse(text)
        node, name, value = _places(tree)[place]
        before = ast.unparse(node)
        setattr(node, name, value)
        line = getattr(node, "lineno", 0)
        lines = min((one for one in statements if one[0] <= line <= one[1]), key=lambda one: one[1] - one[0])
        change = f"{before} → {ast.unparse(node)}"
        code = text.splitlines()[line - 1].strip()
        same[line, change] += 1
        number = same[line, change]
        found.append(Mutant(str(file.relative_to(root)), line, change, ast.unparse(tree), code, lines, number))
    return found


def _statements(tree: ast.Module) -> list[tuple[int, int]]:
    """Return the first and the last line of every statement; of one that holds others, those of its head."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            inner = getattr(node, "body", None)
            last = max(node.lineno, inner[0].lineno - 1) if inner else node.end_lineno or node.lineno
            found.append((node.lineno, last))
    return found


def _places(tree: ast.Module) -> list[tuple[ast.AST, str, object]]:
    """Return nodes, the field of each that is changed, and its new value."""
    places: list[tuple[ast.AST, str, object]] = []
    skipped = _skipped(tree)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp):
            if type(node.op) in SWAPPED and not (isinstance(node, ast.BinOp) and _is_text(node)):
                places.append((node, "op", SWAPPED[type(node.op)]()))
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
            places.append((node, "ops", [SWAPPED[type(node.ops[0])]()]))
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            places.append((node, "value", node.value + 1))
        elif isinstance(node, ast.Constant) and isinstance(node.value, float):
            places.append((node, "value", node.value * 2 or 1.0))
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            places.append((node, "attr", NAMES[node.attr]))
        elif isinstance(node, ast.IfExp):
            places.append((node, "test", ast.UnaryOp(ast.Not(), node.test)))
    return places


def _skipped(tree: ast.Module) -> set[int]:
    """Return the nodes that are no arithmetic: annotations, decorators, what is raised, and its condition's message."""
    found: set[int] = set()

    def skip(node: ast.AST | None) -> None:
        if node is not None:
            found.update(id(inner) for inner in ast.walk(node))

    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            skip(node.returns)
            for argument in (*node.args.args, *node.args.kwonlyargs):
                skip(argument.annotation)
            for decorator in node.decorator_list:
                skip(decorator)
        elif isinstance(node, ast.AnnAssign):
            skip(node.annotation)
        elif isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert | ast.ClassDef) and not isinstance(
            node, ast.ClassDef
        ):
            skip(node)
        elif isinstance(node, ast.Subscript):
            skip(node.slice if isinstance(node.slice, ast.Constant) else None)
        elif isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in node.targets):
            skip(node)  # sizes of chunks, and tables of names
    return found


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(one, ast.JoinedStr) or isinstance(getattr(one, "value", None), str)
               for one in ast.walk(node))  # fmt: skip
