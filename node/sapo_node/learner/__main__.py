"""`python -m sapo_node.learner` is the learner process.

torch and transformers import 3,000 modules. Without the garbage collector that takes a sixth less time.
"""

import gc

gc.disable()

from sapo_node.learner.service import main  # noqa: E402 - the collector is off before anything else is imported

main()
