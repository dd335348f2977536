"""All attacks by id. A scenario names one of them."""

from sapo_adversary.attacks.cherry_pick import CherryPick
from sapo_adversary.attacks.collusion import Collusion
from sapo_adversary.attacks.copycat import Copycat
from sapo_adversary.attacks.cross_domain import CrossDomain
from sapo_adversary.attacks.equivocation import Equivocation
from sapo_adversary.attacks.exhaustion import Exhaustion
from sapo_adversary.attacks.false_claim import FalseClaim
from sapo_adversary.attacks.flat import Flat
from sapo_adversary.attacks.forged_task import ForgedTask
from sapo_adversary.attacks.forgery import Forgery
from sapo_adversary.attacks.gossip.censorship import Censorship
from sapo_adversary.attacks.gossip.cold_boot import ColdBoot
from sapo_adversary.attacks.gossip.control_spam import ControlSpam
from sapo_adversary.attacks.gossip.covert_flash import CovertFlash
from sapo_adversary.attacks.gossip.eclipse import Eclipse
from sapo_adversary.attacks.gossip.false_addresses import FalseAddresses
from sapo_adversary.attacks.gossip.false_introductions import FalseIntroductions
from sapo_adversary.attacks.gossip.freeloader import Freeloader
from sapo_adversary.attacks.gossip.kit import GossipAttack
from sapo_adversary.attacks.gossip.message_flood import MessageFlood
from sapo_adversary.attacks.gossip.slow_streams import SlowStreams
from sapo_adversary.attacks.hash_collision import HashCollision
from sapo_adversary.attacks.hollow import Hollow
from sapo_adversary.attacks.kit import Attack, Threat
from sapo_adversary.attacks.length_bomb import LengthBomb
from sapo_adversary.attacks.malformed import Malformed
from sapo_adversary.attacks.new_keys import NewKeys
from sapo_adversary.attacks.on_off import OnOff
from sapo_adversary.attacks.poison.alternate import Alternate
from sapo_adversary.attacks.poison.beginnings import Beginnings
from sapo_adversary.attacks.poison.creep import Creep
from sapo_adversary.attacks.poison.decoys import Decoys
from sapo_adversary.attacks.poison.drift import Drift
from sapo_adversary.attacks.poison.frame import Frame
from sapo_adversary.attacks.poison.gibberish import Gibberish
from sapo_adversary.attacks.poison.hasty import Hasty
from sapo_adversary.attacks.poison.length import Length
from sapo_adversary.attacks.poison.low_rate import LowRate
from sapo_adversary.attacks.poison.math import Math
from sapo_adversary.attacks.poison.paraphrase import Paraphrase
from sapo_adversary.attacks.poison.slip import Slip
from sapo_adversary.attacks.poison.text import Text
from sapo_adversary.attacks.poison.trigger import Trigger
from sapo_adversary.attacks.reconnect import Reconnect
from sapo_adversary.attacks.replay import Replay
from sapo_adversary.attacks.scorer_exploit import ScorerExploit
from sapo_adversary.attacks.signature_flood import SignatureFlood
from sapo_adversary.attacks.slander import Slander
from sapo_adversary.attacks.small_order import SmallOrder
from sapo_adversary.attacks.sybil import Sybil
from sapo_adversary.attacks.tag_bomb import TagBomb
from sapo_adversary.attacks.twin import Twin

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
    OnOff,
    Collusion,
    Exhaustion,
    Hollow,
)
"""In the order in which they are listed: the wire, identity, the network, rewards, training, trust and resources."""

THREATS = {kind.id: kind for kind in _KINDS}
ATTACKS = {kind.id: kind for kind in _KINDS if issubclass(kind, Attack)}
"""By what is sent: played on the network in memory."""
GOSSIP = {kind.id: kind for kind in _KINDS if issubclass(kind, GossipAttack)}
"""By how the network is used: played on libp2p."""
