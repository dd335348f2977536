"""Small policies beside the packaged seed, built from the package alone, for swarms whose nodes differ.

`catalogue` lists them in numbers; `prepare` finds or builds them in a folder; `make` builds with the parts in
`networks`. torch is imported when something is built. Imports `files`.
"""

from sapo_adversary.research.policies.catalogue import POLICIES
from sapo_adversary.research.policies.prepare import default_folder, meta_of, prepare, require_known

__all__ = ["POLICIES", "default_folder", "meta_of", "prepare", "require_known"]
