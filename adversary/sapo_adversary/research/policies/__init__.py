"""Small policies beside the packaged seed, each built from nothing but the package, for swarms whose nodes differ.

`catalogue` says what each of them is, in numbers; `prepare` finds or builds them in a folder; `make` does the work with
the parts in `networks`. torch is imported when something is built.
"""

from sapo_adversary.research.policies.catalogue import POLICIES
from sapo_adversary.research.policies.prepare import DEFAULT_FOLDER, meta_of, prepare, require_known

__all__ = ["DEFAULT_FOLDER", "POLICIES", "meta_of", "prepare", "require_known"]
