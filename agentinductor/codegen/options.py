"""Compile options that a solution may carry: none of them changes what NaN, infinity or a denormal means."""

import re

ALLOWED = {
    "cpp": re.compile(
        r"-O[23]|-std=c\+\+(17|20)|-mprefer-vector-width=(128|256|512)|-f(no-)?(unroll-loops|tree-vectorize|inline)"
        r"|-ffp-contract=(fast|off|on)|-f(no-)?(math-errno|trapping-math)|-fvect-cost-model=(unlimited|dynamic|cheap)"
    ),
    "cuda": re.compile(r"-?-maxrregcount=[0-9]{1,3}|-?-fmad=(true|false)|-?-extra-device-vectorization|-?-restrict"),
    "triton": re.compile(r"(?!)"),  # its options are launch keywords
}


def refused(language: str, options: tuple[str, ...]) -> str | None:
    """The first option that may not be used, or None."""
    return next((option for option in options if not ALLOWED[language].fullmatch(option)), None)
