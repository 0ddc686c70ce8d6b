"""Static checks: every trick under tests/hostile/static/refused is refused, every honest source is accepted."""

from pathlib import Path

import pytest

from agentinductor.errors import StaticCheckError
from agentinductor.schema import Launch, Solution, Source
from agentinductor.validation.static_checks import check

SAMPLES = Path(__file__).parents[1] / "hostile" / "static"
LANGUAGES = {".cpp": ("cpp", "kernel.cpp::kernel"), ".cu": ("cuda", "kernel.cu::kernel"), ".txt": ("triton", "kernel.py::run")}


def solution(path: Path, **changes) -> Solution:
    language, entry = LANGUAGES[path.suffix]
    launches = (Launch("kernel", ("1", "1", "1"), 32, ()),) if language == "cuda" else ()
    return Solution("d" * 64, language, entry, (Source(entry.split("::")[0], path.read_text()),), launches=launches, **changes)


def samples(folder: str) -> list[Path]:
    return sorted((SAMPLES / folder).iterdir())


@pytest.mark.parametrize("path", samples("refused"), ids=lambda p: p.name)
def test_trick_is_refused(path):
    with pytest.raises(StaticCheckError) as caught:
        check(solution(path))
    message = str(caught.value)
    assert message.startswith("kernel.") and ("; " in message or "parse" in message)


@pytest.mark.parametrize("path", samples("accepted"), ids=lambda p: p.name)
def test_honest_source_is_accepted(path):
    check(solution(path))


@pytest.mark.parametrize(
    "option", ["-ffast-math", "-Ofast", "-fplugin=x.so", "-include", "-Wl,-init,f", "@file", "-O3 -ffast-math"]
)
def test_compile_option_is_refused(option):
    with pytest.raises(StaticCheckError, match="compile option"):
        check(solution(SAMPLES / "accepted" / "plain.cpp", compile_options=(option,)))


def test_one_file_only():
    base = solution(SAMPLES / "accepted" / "plain.cpp")
    two = Solution(base.definition, "cpp", base.entry_point, (*base.sources, Source("other.h", "int x;")))
    with pytest.raises(StaticCheckError, match="one file"):
        check(two)


def test_deep_nesting_is_refused_not_a_crash():
    text = "import triton\nx = " + "(" * 5000 + ")" * 5000
    with pytest.raises(StaticCheckError):
        check(Solution("d" * 64, "triton", "kernel.py::run", (Source("kernel.py", text),)))
