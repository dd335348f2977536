"""Where the addresses of bootstrap peers come from."""

from pathlib import Path

import pytest

from sapo_node.app.bootstrap import bootstrap_of
from sapo_node.app.config import Config
from sapo_protocol import LocalError

FIRST = "/ip4/192.0.2.7/tcp/4001/p2p/12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT"


def hinted(folder: Path, text: str, *, manifest: str = "mine.toml") -> tuple[str, ...]:
    """The bootstrap peers of an operator who gave one, with this file beside the manifest."""
    (folder / "mine.bootstrap").write_text(text)
    return bootstrap_of(Config(swarm=str(folder / manifest), bootstrap=("/dnsaddr/mine.example",)))


@pytest.mark.parametrize("manifest", ["mine.toml", "mine"])
def test_the_file_beside_the_manifest_names_bootstrap_peers_after_those_of_the_operator(
    manifest: str, tmp_path: Path
) -> None:
    text = f"\ufeff# of the swarm\n\n{FIRST}  # Lyon\r\n/dnsaddr/seed.example\n/dnsaddr/mine.example\n"
    assert hinted(tmp_path, text, manifest=manifest) == ("/dnsaddr/mine.example", FIRST, "/dnsaddr/seed.example")


def test_a_swarm_without_such_a_file_has_the_operators_bootstrap_peers(tmp_path: Path) -> None:
    for swarm in ("starter", str(tmp_path / "mine.toml")):
        assert bootstrap_of(Config(swarm=swarm, bootstrap=(FIRST,))) == (FIRST,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# ok\nnonsense\n", r"mine\.bootstrap, line 2: 'nonsense' cannot be dialled"),
        ("".join(f"/dnsaddr/{number}.example\n" for number in range(65)), "65 bootstrap peers; leave at most 64"),
        ("#" * 65_537, "65,?536|larger|bytes"),
    ],
)
def test_a_bad_file_of_bootstrap_peers_is_named(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=says):
        hinted(tmp_path, text)
