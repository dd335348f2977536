"""Remarks on datasets of reasoning-gym: where its references are wrong, and which datasets are left out."""

NOTES = {
    "ab": "With an even length some programs end in nothing, and no answer is correct.",
    "arc_agi": "Training tasks only: the evaluation tasks of ARC are a test set.",
    "coin_flip": "The library allows an error of 0.0001, so that 0 earns most of its items.",
    "family_relationships": "In 12 % of the items the reference names the relation the wrong way round, a "
    "parent-in-law where a child-in-law is asked for. Both are accepted here.",
    "letter_counting": "With its own default texts 1 is correct in 35 % of the items.",
    "maze": "With its own default sizes 5 is correct in 31 % of the items.",
    "modulo_grid": "With one hole, as by its own default, the prompt with a cross in the hole is correct in 92 % of "
    "the items; with 80 holes in 4 %.",
    "number_format": "The reference has rounding errors behind the third decimal in 17 % of the items. The library "
    "allows an error of 0.01, more than some candidates differ.",
    "number_sorting": "The library allows an error of 1 in each number, and NaN.",
    "pool_matrix": "With a kernel of 1, as in 31 % of the items by its own default, the matrix itself is correct.",
    "prime_factorization": "The library gives half of the reward to any product that fits, and raises an "
    "exception for text.",
    "rotate_matrix": "With its own default rotations the matrix itself is correct in 28 % of the items.",
    "rotten_oranges": "With its own default shares -1 is correct in 34 % of the items.",
    "simple_geometry": "37 % of the polygons are not convex, though the prompt says so. The reference is the angle "
    "that the sum demands, above 180 or below 0 degrees.",
    "string_manipulation": "With its own default lengths the string itself is correct in 30 % of the items, and with "
    "these in 17 %.",
}
"""What a reader of the page should know of a dataset."""

LEFT_OUT = {
    "gcd": "2 is correct in 29 % of the items, at any size of the numbers",
    "self_reference": "2 is correct in 37 % of the items, at any difficulty",
    "sentence_reordering": "the reference is wrong where a word repeats, in 26 % of the items, and other orders are "
    "sentences too",
    "string_insertion": "the string itself is correct in 94 % of the items, and with strings of 80 to 160 characters "
    "still in 46 %",
    "tsumego": "in 27 % of 1,000 items the reference captures no stone, and in most of these no move does",
}
"""Datasets that a scorer could judge, with the reason for which they are not in the catalogue."""
