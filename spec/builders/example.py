"""The round in the text: Alice's first group of (epoch 5, counter 24), with one correct completion."""

from tasks import digest, example_item
from wire import ALICE, FALSE, TRUE, array, body, bstr, completion, envelope, header, sha256, sorted_table, uint

EPOCH, COUNTER = 5, 24

TEXTS = ("5 and 9: <answer>14</answer>", "<answer>59</answer>")
BODY = body([completion(TEXTS[0]), completion(TEXTS[1], "length")])
GROUP_FIELDS = {
    "body": bstr(sha256(BODY)),
    "claims": array([TRUE, FALSE]),
    "digest": bstr(digest(*example_item(ALICE.public, EPOCH, COUNTER, 0))),
}
GROUP = sorted_table(GROUP_FIELDS)
FIELDS = {"epoch": uint(EPOCH), "groups": array([GROUP]), "counter": uint(COUNTER)}
HEADER = header([GROUP], epoch=EPOCH, counter=COUNTER)
ENVELOPE = envelope(HEADER)
