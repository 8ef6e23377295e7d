"""torch, ray and TensorFlow are reached from named files only: importing anything else must not load them.

A file reaches a library by an `import` statement, at the top or inside a function, by `import_extra("torch", …)` or a
similar call, or by such a call with a variable if the library's name is a string in the same file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ensembed"
IMPORTERS = ("import_extra", "import_module", "find_spec", "__import__")

# Files that import a library when they are imported themselves, which happens inside functions only.
AT_THE_TOP = {
    "torch": {
        "distil/bert_kernels.py",
        "distil/bert_student.py",
        "distil/static_student.py",
        "distil/student_training.py",
        "integrations/sentence_transformers.py",
        "methods/autoencoder/cross_view_network.py",
        "methods/autoencoder/training_batches.py",
        "methods/autoencoder/training_loop.py",
        "methods/autoencoder/triton_kernels.py",
        "numerics/process_group.py",
    },
    "ray": set[str](),
    "tensorflow": set[str](),
}
# Files that import a library when a function is called.
IN_FUNCTIONS = {
    "torch": {
        "cli/demo.py",
        "distil/distillation.py",
        "encoders/st_loading.py",
        "engines/ray/ray_training.py",
        "methods/passes.py",
        "numerics/torch_device.py",
        "paper/main_table_demo.py",
        "paper/report/page.py",
    },
    "ray": {
        "engines/ray/ray_engine.py",
        "engines/ray/ray_training.py",
        "engines/ray/row_blocks.py",
        "engines/ray/shard_worker.py",
        "engines/ray/view_filling.py",
        "engines/ray/worker_encoder.py",
    },
    "tensorflow": {"encoders/tfhub/tensorflow_start.py"},
}


def imported(node: ast.AST) -> list[str]:
    """The modules that a statement or a call imports; "?" for a call whose module is a variable."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""] if not node.level else []
    if isinstance(node, ast.Call) and node.args:
        function = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if function in IMPORTERS:
            first = node.args[0]
            return [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else ["?"]
    return []


def imports(tree: ast.AST, *, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """The top-level packages that a module imports, and whether it does so inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield from ((name.partition(".")[0], inside) for name in imported(node))
        yield from imports(node, inside=inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def reached(library: str, tree: ast.AST) -> set[bool]:
    """Whether a module reaches a library: at the top (False), inside a function (True), both or not at all."""
    found = set(imports(tree))
    places = {inside for name, inside in found if name == library}
    if any(name == "?" for name, _ in found):
        words = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        if any(word.partition(".")[0] == library for word in words if " " not in word):
            places.add(True)
    return places


@pytest.mark.parametrize("library", AT_THE_TOP)
def test_heavy_libraries_are_reached_from_named_files_only(library: str) -> None:
    files: dict[str, set[str]] = {"AT_THE_TOP": set(), "IN_FUNCTIONS": set()}
    for path in PACKAGE.rglob("*.py"):
        if places := reached(library, ast.parse(path.read_text("utf-8"))):
            title = "AT_THE_TOP" if False in places else "IN_FUNCTIONS"
            files[title].add(path.relative_to(PACKAGE).as_posix())
    for title, expected in (("AT_THE_TOP", AT_THE_TOP[library]), ("IN_FUNCTIONS", IN_FUNCTIONS[library])):
        new, gone = sorted(files[title] - expected), sorted(expected - files[title])
        assert files[title] == expected, (
            f"The files that import {library} have changed. After a rename, correct {title}[{library!r}] in "
            f"{Path(__file__).name}: add {new}, remove {gone}. In a new file, call a function of a listed file, "
            f"if there is one; otherwise use import_extra({library!r}, …) inside a function."
        )


def test_every_way_to_reach_a_library_is_seen() -> None:
    for code, places in [
        ("import torch.nn", {False}),
        ("def f():\n    from torch import nn", {True}),
        ("def f():\n    import_extra('torch', 'ae', 'it')", {True}),
        ("def f(name='torch'):\n    importlib.import_module(name)", {True}),
        ("from __future__ import annotations\nif TYPE_CHECKING:\n    import torch", set()),
        ("from .torch import nn\nx = 'torch'", set()),
    ]:
        assert reached("torch", ast.parse(code)) == places
