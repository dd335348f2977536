"""All attacks by id. A scenario names one of them."""

from sapo_adversary.attacks.bodies import AskingStorm, Withholding
from sapo_adversary.attacks.gossip.floods import (
    ControlSpam,
    FalseAddresses,
    FalseIntroductions,
    MessageFlood,
    SlowStreams,
)
from sapo_adversary.attacks.gossip.isolation import Censorship, ColdBoot, CovertFlash, Eclipse, Freeloader
from sapo_adversary.attacks.gossip.kit import GossipAttack
from sapo_adversary.attacks.hollow import Hollow
from sapo_adversary.attacks.identity import (
    CrossDomain,
    Equivocation,
    Forgery,
    NewKeys,
    Reconnect,
    Replay,
    SmallOrder,
    Sybil,
)
from sapo_adversary.attacks.kit import Attack, Threat
from sapo_adversary.attacks.poison import (
    Alternate,
    Beginnings,
    Creep,
    Decoys,
    Drift,
    Frame,
    Gibberish,
    Hasty,
    Length,
    LowRate,
    Math,
    Paraphrase,
    Slip,
    Text,
    Trigger,
)
from sapo_adversary.attacks.resource import Exhaustion, SignatureFlood
from sapo_adversary.attacks.reward import CherryPick, FalseClaim, ForgedTask, ScorerExploit
from sapo_adversary.attacks.training import Copycat, Flat, Parts
from sapo_adversary.attacks.trust import Collusion, OnOff, Slander
from sapo_adversary.attacks.wire import HashCollision, LengthBomb, Malformed, TagBomb, Twin

_KINDS: tuple[type[Threat], ...] = (
    Malformed,
    Twin,
    LengthBomb,
    HashCollision,
    TagBomb,
    SlowStreams,
    Forgery,
    SmallOrder,
    CrossDomain,
    Replay,
    Equivocation,
    Reconnect,
    NewKeys,
    Sybil,
    Eclipse,
    ColdBoot,
    CovertFlash,
    Censorship,
    Freeloader,
    ControlSpam,
    SignatureFlood,
    MessageFlood,
    FalseAddresses,
    FalseIntroductions,
    FalseClaim,
    ForgedTask,
    CherryPick,
    ScorerExploit,
    Slander,
    Text,
    Math,
    Slip,
    Trigger,
    Length,
    Creep,
    Gibberish,
    LowRate,
    Paraphrase,
    Alternate,
    Decoys,
    Beginnings,
    Frame,
    Flat,
    Copycat,
    Drift,
    Hasty,
    Parts,
    OnOff,
    Collusion,
    Exhaustion,
    Hollow,
    Withholding,
    AskingStorm,
)
"""In the order in which they are listed: the wire, identity, the network, rewards, training, trust and resources."""

THREATS = {kind.id: kind for kind in _KINDS}
ATTACKS = {kind.id: kind for kind in _KINDS if issubclass(kind, Attack)}
"""By what is sent: played on the network in memory."""
GOSSIP = {kind.id: kind for kind in _KINDS if issubclass(kind, GossipAttack)}
"""By how the network is used: played on libp2p."""
