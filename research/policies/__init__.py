"""Small policies beside the packaged seed, built from the package alone, for swarms whose nodes differ.

`catalogue` lists them in numbers; `prepare` finds or builds them in a folder; `make` builds with the parts in
`networks`. torch is imported when something is built.
"""

from research.policies.catalogue import POLICIES
from research.policies.prepare import meta_of, prepare, prepare_all, require_known

__all__ = ["POLICIES", "meta_of", "prepare", "prepare_all", "require_known"]
