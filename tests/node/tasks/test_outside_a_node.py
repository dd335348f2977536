"""The room of tasks as other programs use it: without torch, an event loop or the network."""

import doctest
import subprocess
import sys

import pytest

from sapo_node import tasks
from sapo_node.tasks import build_task, catalogue, plugins, score
from sapo_protocol import load_manifest, shipped_manifests

_IMPORTING = """
import sys, time
opened = []
sys.addaudithook(lambda event, arguments: event.startswith("socket.") and opened.append(event))
began = time.process_time()
import sapo_node.tasks
print(f"the import of sapo_node.tasks takes {time.process_time() - began:.2f} s of processor time", file=sys.stderr)
print(*opened, *(sys.modules.keys() & {"torch", "trio", "libp2p", "reasoning_gym", "numpy", "sapo_node.net"}))
"""


def test_an_import_opens_no_socket_and_imports_no_torch_event_loop_or_library_of_tasks():
    done = subprocess.run([sys.executable, "-c", _IMPORTING], capture_output=True, text=True, check=True)
    assert "s of processor time" in done.stderr
    assert done.stdout == "\n"


def test_the_example_of_the_room_holds():
    failed, tried = doctest.testmod(tasks)
    assert (failed, tried) == (0, 5)


def test_the_catalogue_has_every_dataset_of_the_shipped_swarms_and_each_can_be_scored():
    listed = {entry.dataset: entry for entry in catalogue()}
    for name in shipped_manifests():
        for spec in load_manifest(name).tasks:
            assert listed[spec.dataset].answer
            assert score(build_task(spec.dataset, spec.config, 1), "<answer>\0</answer>") == 0


@pytest.fixture
def defined(tmp_path, monkeypatch):
    """Installs a package that defines a dataset by a module which cannot be imported."""
    info = tmp_path / "sapo_odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sapo-odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\nodd.one = no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget()
    yield
    plugins.forget()


def test_a_dataset_of_a_package_is_listed_with_its_package_and_not_imported(defined):
    assert catalogue()[-1] == tasks.Entry("odd.one", "", None, "sapo-odd")
