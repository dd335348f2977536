from sapo_node.processes.bounded import Bounded


def test_the_item_that_was_set_first_gives_way_and_reading_saves_none():
    kept: Bounded[str, int] = Bounded(2)
    for name, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        kept[name] = value
        kept.get("b")
    assert list(kept.items()) == [("a", 3), ("c", 4)]
