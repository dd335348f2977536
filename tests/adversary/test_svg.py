"""Pictures hold names that anybody may have written."""

import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure

from sapo_adversary.svg import style, svg
from sapo_protocol.printable import printable


@pytest.mark.parametrize("name", [r"$\frac{$", "$a$", "a\x1b[2J", "a\u202e", "a\0", "<script>", "naïve"])
def test_a_picture_shows_any_name_as_printable_text(name):
    with style():
        figure = Figure()
        figure.subplots().set_yticks([0], [name])
        drawn = svg(figure)
    assert drawn.replace("\n", "").isprintable()
    parsed = ET.fromstring(drawn)
    shown = [each.text for each in parsed.iter() if each.tag.endswith("}text")]
    assert printable(name) in shown
