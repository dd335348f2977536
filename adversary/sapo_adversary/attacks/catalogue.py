"""All attacks, by id."""

from sapo_adversary.attacks.false_claim import FalseClaim
from sapo_adversary.attacks.kit import Attack

_KINDS: tuple[type[Attack], ...] = (FalseClaim,)

ATTACKS = {kind.id: kind for kind in sorted(_KINDS, key=lambda kind: kind.row)}
