"""The entry points say which part of the package is missing, whenever they notice it."""

import pytest

from sapo_node.cli.entry import run


@pytest.mark.parametrize(
    "source", ["import no_such_module\ndef main(): ...", "def main():\n    import no_such_module"], ids=["load", "run"]
)
def test_a_missing_module_is_one_line_that_says_what_to_install(source, tmp_path, monkeypatch, request):
    name = f"commands_{request.node.callspec.id}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match=r"needs no_such_module.*pip install 'sapo-node\[adversary\]'"):
        run(name, needs="adversary")


def test_a_missing_module_of_our_own_is_a_fault_and_not_an_installation(tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text("def main():\n    import sapo_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError):
        run("faulty", needs="train")
