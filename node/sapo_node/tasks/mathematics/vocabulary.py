r"""Names and signs, LaTeX and plain, with the kind of token that each becomes; and units."""

SIGNS: dict[str, str] = {kind: kind for kind in (*"-+*/^_=<>!'&%()[]{}|,;:", "<=", ">=", "!=", "\\{", "\\}")} | {
    sign: kind
    for kind, signs in {
        "*": r"\cdot \times \ast",
        "/": r"\div",
        "^": "**",
        "=": "==",
        "~": r"\approx \simeq",
        "<": r"\lt",
        "<=": r"\le \leq \leqslant",
        ">": r"\gt",
        ">=": r"\ge \geq \geqslant",
        "!=": r"\ne \neq",
        "%": r"\%",
        "(": r"\langle",
        ")": r"\rangle",
        "[": r"\lbrack",
        "]": r"\rbrack",
        "\\{": r"\lbrace",
        "\\}": r"\rbrace",
        "|": r"\lvert \rvert \vert \mid",
        ":": r"\colon",
        "'": r"\prime",
        "in": r"\in",
        "cup": r"\cup",
        "pm": r"\pm +-",
        "mp": r"\mp",
        "and": r"\land",
        "or": r"\lor",
        "circ": r"\circ",
        "degree": r"\degree",
        "frac": r"\frac \dfrac \tfrac \cfrac",
        "binom": r"\binom \dbinom \tbinom",
        "over": r"\overline",
        "empty": r"\emptyset \varnothing",
        "floor": r"\lfloor",
        "floored": r"\rfloor",
        "ceil": r"\lceil",
        "ceiled": r"\rceil",
        "infty": r"\infty",
        "pi": r"\pi",
    }.items()
    for sign in signs.split()
}
"""Signs and commands, with their kinds."""

WORDS: dict[str, str] = {
    word: kind
    for kind, words in {
        "and": "and",
        "or": "or",
        "%": "percent pct percentage",
        "pi": "pi",
        "infty": "inf infinity infty",
    }.items()
    for word in words.split()
}
"""Plain words, in lower case, with their kinds."""

FUNCTIONS = frozenset({"sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "lg", "exp", "sqrt"}) | {
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
}
GREEK = (
    frozenset(
        {
            "alpha",
            "beta",
            "gamma",
            "delta",
            "epsilon",
            "varepsilon",
            "zeta",
            "eta",
            "theta",
            "vartheta",
            "iota",
            "kappa",
        }
    )
    | {"lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "ell", "hbar"}
    | {"Gamma", "Delta", "Theta", "Lambda", "Xi", "Sigma", "Phi", "Psi", "Omega"}
)
ORNAMENTS = frozenset(("vec", "hat", "bar", "tilde", "mathcal"))
"""Commands that are dropped: the letter in their argument counts."""

TYPED = str.maketrans(
    {
        "\N{MINUS SIGN}": "-",
        "\N{EN DASH}": "-",
        "\N{MULTIPLICATION SIGN}": "*",
        "\N{MIDDLE DOT}": "*",
        "\N{DOT OPERATOR}": "*",
        "\N{DIVISION SIGN}": "/",
        "\N{GREEK SMALL LETTER PI}": r"\pi ",
        "\N{SQUARE ROOT}": r"\sqrt ",
        "\N{INFINITY}": r"\infty ",
        "\N{LESS-THAN OR EQUAL TO}": r"\le ",
        "\N{GREATER-THAN OR EQUAL TO}": r"\ge ",
        "\N{NOT EQUAL TO}": r"\ne ",
        "\N{ALMOST EQUAL TO}": r"\approx ",
        "\N{ELEMENT OF}": r"\in ",
        "\N{UNION}": r"\cup ",
        "\N{PLUS-MINUS SIGN}": r"\pm ",
        "\N{DEGREE SIGN}": r"\degree ",
        "\N{SUPERSCRIPT TWO}": "^2 ",
        "\N{SUPERSCRIPT THREE}": "^3 ",
        "\N{EURO SIGN}": r"\$",
        "\N{POUND SIGN}": r"\$",
        "\t": " ",
        "\r": " ",
        "\n": " ",
    }
)
"""Signs that people type, as LaTeX or ASCII."""

UNITS = {
    word + plural: name
    for name, words in {
        "mm": "millimeter millimetre",
        "cm": "centimeter centimetre",
        "m": "meter metre",
        "km": "kilometer kilometre",
        "in": "inch inches",
        "ft": "foot feet",
        "yd": "yard",
        "mi": "mile",
        "mg": "milligram",
        "g": "gram",
        "kg": "kilogram",
        "lb": "pound",
        "oz": "ounce",
        "ml": "milliliter millilitre",
        "l": "liter litre",
        "gal": "gallon",
        "s": "sec second",
        "min": "minute",
        "h": "hr hour",
        "day": "",
        "wk": "week",
        "mo": "month",
        "yr": "year",
        "mph": "",
        "degree": "deg",
        "radian": "rad",
        "dollar": "usd buck",
        "cent": "",
        "euro": "eur",
        "unit": "",
        "point": "",
    }.items()
    for word in (name, *words.split())
    for plural in (("", "s") if len(word) > 1 else ("",))
}
"""Words and signs of units, each with one name for all that mean the same."""

UNIT_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3"}

NO_UNITS = (
    frozenset(
        {"hundred", "thousand", "million", "billion", "trillion", "dozen", "score", "half", "halves", "third", "thirds"}
    )
    | {"quarter", "quarters", "fourth", "fourths", "fifth", "fifths", "tenth", "tenths", "hundredth", "hundredths"}
    | {"squared", "cubed", "times", "plus", "minus", "over", "pi", "double", "twice", "percent", "negative", "base"}
    | {"mod", "factorial", "pair", "pairs", "or", "and", "but", "to", "not", "either", "maybe", "is", "are", "if"}
)
"""Words behind a number that change what it says: with one of them a text is unreadable."""
