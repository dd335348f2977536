"""Where a line belongs can be told from the folders: no circle of imports."""

import ast
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "protocol/sapo_protocol", ROOT / "node/sapo_node", ROOT / "adversary/sapo_adversary"]


def modules(package):
    """Yield dotted name, path and source of each module."""
    for path in package.rglob("*.py"):
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path, path.read_text("utf-8")


def imports(package):
    """By module, the modules of the package that it imports: at the top, within functions and for types."""
    graph = {name: set() for name, _, _ in modules(package)}
    for name, path, source in modules(package):
        inside = name if path.stem == "__init__" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & graph.keys()
            elif isinstance(node, ast.ImportFrom):
                origin = resolve_name("." * node.level + (node.module or ""), inside)
                names = {f"{origin}.{alias.name}" for alias in node.names}
                graph[name] |= {each if each in graph else origin for each in names} & graph.keys()
    return graph


def rooms(package):
    """The same by room: a folder of the package, or a module beside the folders."""
    graph = {}
    for name, imported in imports(package).items():
        room, *others = (".".join(each.split(".")[:2]) for each in (name, *imported))
        graph.setdefault(room, set()).update({*others} - {room})
    return graph


@pytest.mark.parametrize("graph_of", [imports, rooms])
@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_import_leads_back_to_where_it_began(package, graph_of):
    TopologicalSorter(graph_of(package)).prepare()  # raises CycleError, which names the circle
