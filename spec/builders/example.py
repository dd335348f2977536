"""The round in the text: Alice's first group of (epoch 5, counter 75), with one correct completion."""

from tasks import digest, example_item
from wire import ALICE, array, body, bstr, completion, envelope, header, sha256, sorted_table, uint

EPOCH, COUNTER = 5, 75

TEXTS = ("3 and 9: <answer>12</answer>", "<answer>39</answer>")
BODY = body([completion(TEXTS[0]), completion(TEXTS[1], "length")])
GROUP_FIELDS = {
    "body": bstr(sha256(BODY)),
    "claims": bstr(bytes([1, 0])),
    "digest": bstr(digest(*example_item(ALICE.public, EPOCH, COUNTER, 0))),
}
GROUP = sorted_table(GROUP_FIELDS)
FIELDS = {"epoch": uint(EPOCH), "groups": array([GROUP]), "counter": uint(COUNTER)}
HEADER = header([GROUP], epoch=EPOCH, counter=COUNTER)
ENVELOPE = envelope(HEADER)
