"""A node raises its limit of open files as far as it may, and says so where that is not enough."""

import subprocess
import sys

import pytest

from processes import ENVIRONMENT
from sapo_node.processes.limits import NEEDED

LIMITED = """
import resource, sys
from sapo_node.processes.limits import raise_limit
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(raise_limit())
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def raised(soft, hard):
    """What a process with these limits says, and its soft limit afterwards."""
    arguments = (sys.executable, "-c", LIMITED, str(soft), str(hard))
    done = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    said, limit = done.stdout.splitlines()
    return said, int(limit)


@pytest.mark.parametrize(
    ("soft", "hard", "limit"), [(64, 4_096, 1_024), (64, 512, 512), (64, NEEDED, NEEDED), (2_048, 4_096, 2_048)]
)
def test_the_soft_limit_rises_as_far_as_a_node_wants_and_never_falls(soft, hard, limit):
    assert raised(soft, hard) == ("", limit)


def test_a_hard_limit_below_what_a_node_needs_is_reported_with_what_to_do():
    said, limit = raised(64, NEEDED - 1)
    assert limit == NEEDED - 1
    assert f"may open {NEEDED - 1} files" in said
    assert f"ulimit -Hn {NEEDED}" in said
