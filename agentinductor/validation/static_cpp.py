"""Static checks of C++ and CUDA sources: their tokens, directives and declarations.

The scanner refuses what would let the compiler see other tokens than it does: line splices, trigraphs, digraphs, escapes
outside literals, raw strings, token pasting. Inline assembly is refused in both languages; intrinsics (<immintrin.h>,
CUDA's functions) reach the same instructions and can be read.
"""

import re
from typing import NoReturn

from ..errors import StaticCheckError

INCLUDES = {
    "cpp": {
        "cmath",
        "cstdint",
        "cstddef",
        "cstring",
        "algorithm",
        "limits",
        "type_traits",
        "utility",
        "array",
        "omp.h",
        "immintrin.h",
    },
    "cuda": {"cuda_fp16.h", "cuda_bf16.h", "mma.h"},
}
ATTRIBUTES = {"always_inline", "noinline", "aligned", "vector_size", "unused", "may_alias", "const", "pure", "hot", "flatten"}
_CONDITIONALS = ("if", "ifdef", "ifndef", "elif", "else", "endif")
_KEYWORD_NAMES = """
    alignas auto bool break case char class const constexpr continue decltype default do double else enum explicit
    extern float for if inline int long namespace noexcept operator private public return short signed sizeof static
    static_assert struct switch template this typedef typename union unsigned using void volatile while defined int64_t
    uint64_t int32_t uint32_t size_t
"""
KEYWORDS = frozenset(_KEYWORD_NAMES.split())
DIRECTIVES = ("include", "define", "if", "ifdef", "ifndef", "elif", "else", "endif", "pragma")
PRAGMAS = re.compile(
    r"omp (parallel|for|simd|single|barrier|atomic|critical)\b[\w\s():,+*|&.<>=!/%\[\]-]*"
    r"|GCC (unroll \d+|ivdep)|unroll(\s+\d+|\s*\(\s*\d+\s*\))?"
)
_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+)|(?P<newline>\n)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>(?:u8|[uUL])?\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)|(?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op><<<|>>>|::|->|##|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!=<>?:;,.(){}\[\]#])",
    re.DOTALL | re.ASCII,
)
_HIDDEN = (  # what would make the compiler read other tokens than we do
    (re.compile(r"\\[ \t\r]*\n"), "a backslash at the end of a line"),
    (re.compile(r"\?\?[=/'()!<>-]"), "a trigraph"),
    (re.compile(r"%:|<:|:>|<%|%>"), "a digraph"),
    (re.compile(r"\b(u8|u|U|L)?R\""), "a raw string"),
    (re.compile(r"[\x00-\x08\x0b-\x1f\x7f]"), "a control character"),
)
_NAMES = """
    asm typeid throw try catch new delete goto co_await co_yield co_return import module export thread_local
    operator_new register system popen pclose fork vfork execv execve execvp execl execlp execle execvpe posix_spawn
    wait waitpid exit abort terminate atexit at_quick_exit quick_exit _exit _Exit signal raise kill sigaction longjmp
    setjmp alarm open openat creat close read write pread pwrite lseek unlink remove rename mkdir rmdir chmod chown stat
    ioctl fcntl dup pipe fopen freopen fdopen fread fwrite fclose fputs fgets puts putchar printf fprintf sprintf
    snprintf vprintf scanf tmpfile getenv setenv putenv environ socket connect bind listen accept send recv sendto
    recvfrom getaddrinfo dlopen dlsym dlclose dlmopen mmap munmap mprotect mremap madvise shm_open syscall ptrace prctl
    seccomp malloc calloc realloc free alloca aligned_alloc posix_memalign sbrk brk thread jthread async future promise
    mutex atomic condition_variable pthread_create filesystem fstream ifstream ofstream iostream cout cerr cin chrono
    clock gettimeofday clock_gettime time rand srand random sleep usleep nanosleep clock64 globaltimer __trap __brkpt
    __nanosleep trap assert errno stdin stdout stderr _Pragma omp_set_num_threads omp_set_dynamic omp_set_nested
    omp_set_schedule omp_set_max_active_levels
"""
FORBIDDEN = frozenset(_NAMES.split())
_ORDINARY = """
    read write open close time clock remove rename stat send accept bind listen wait pipe signal raise select random
    sleep connect export environ abort exit kill dup
"""
_WORDS = frozenset(_ORDINARY.split())  # fine as a variable's name
_FAMILIES = re.compile(r"(cuda|cu)[A-Z]\w*|pthread_\w+|GOMP_\w+|_?_?kmpc?_\w+|gomp_\w+")
_UNDERSCORED = re.compile(  # names with two leading underscores that may be used
    r"__restrict(__)?|__attribute__|__(AVX|SSE|FMA|F16C|BMI|ARM)\w*|__(GNUC|GNUC_MINOR|clang|x86_64|aarch64|cplusplus|CUDA_ARCH)__|__cplusplus"
    r"|__CUDA_ARCH__|__m(128|256|512)(d|i|bh|h)?|__mmask\d+|__int128|__bf16|__inline__|__half\w*|__nv_bfloat16\w*|__(global|device|shared|host"
    r"|forceinline|noinline|launch_bounds|grid_constant|restrict)__|__sync(threads|warp)\w*|__shfl_\w*sync|__(any|all|ballot|reduce)_\w*sync"
    r"|__activemask|__ld(g|cg|ca|cs|lu|cv)|__st(wb|cg|cs|wt)|__(float|double|int|uint|ll|ull|ushort|short|bfloat16|half|low|high|lows|highs)\w*"
    r"|__[a-z]?(exp|exp10|log|log2|log10|sin|cos|tan|pow|sincos|fdivide|saturate|frcp|fsqrt|frsqrt|fadd|fmul|fsub|fmaf|fdiv|fma|rsqrt)\w*"
    r"|__(h[a-z]+\d?\w*|h2\w+|popc|popcll|clz|clzll|ffs|ffsll|brev|byte_perm|umulhi|mulhi|umul64hi|mul64hi|dp4a|threadfence(_block)?|pipeline_\w+)"
    r"|__builtin_(bit_cast|expect|memcpy|memset|assume_aligned|assume|fmaf?|fmaxf?|fminf?|fabsf?|sqrtf?|floorf?|ceilf?|rintf?|nearbyintf?"
    r"|copysignf?|unreachable|prefetch|clzl*|ctzl*|popcountl*|isnan|isinf|isfinite|nanf?|inff?|huge_valf?|convertvector|shuffle|shufflevector"
    r"|ia32_\w+)"
)


class _Token:
    __slots__ = ("kind", "text", "line")

    def __init__(self, kind: str, text: str, line: int):
        self.kind, self.text, self.line = kind, text, line


def check(path: str, text: str, language: str) -> None:
    """Raises StaticCheckError when `text` uses something that C++ or CUDA solutions may not use."""
    for pattern, what in _HIDDEN:
        found = pattern.search(text)
        if found:
            _refuse(path, text.count("\n", 0, found.start()) + 1, what, "write the code plainly")
    code: list[_Token] = []
    depths: list[int] = []  # of braces, where each open #if began
    for line in _lines(path, text):
        if line[0].text != "#":
            code += line
            continue
        _directive(path, line, language)
        if len(line) > 1 and line[1].text in _CONDITIONALS:
            _conditional(path, line[1], code, depths)
    _names(path, code, language)
    _declarations(path, code)


def _lines(path: str, text: str) -> list[list[_Token]]:
    """Tokens without spaces and comments, line by line; a comment does not end a line."""
    lines: list[list[_Token]] = [[]]
    at, number = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            _refuse(path, number, f"the character {text[at]!r}", "use plain ASCII C++; comments must be closed")
        kind = found.lastgroup or ""
        if kind == "newline":
            lines.append([])
        elif kind not in ("space", "comment"):
            lines[-1].append(_Token(kind, found.group(), number))
        number += found.group().count("\n")
        at = found.end()
    return [line for line in lines if line]


def _conditional(path: str, directive: _Token, code: list[_Token], depths: list[int]) -> None:
    """Each branch of an #if holds whole statements: whichever is compiled, declarations begin where we see them begin."""
    depth = sum((token.text == "{") - (token.text == "}") for token in code)
    if directive.text.startswith("if"):
        depths.append(depth)
    whole = not code or code[-1].text in ("{", "}", ";")
    if not depths or depth != depths[-1] or not whole:
        _refuse(
            path,
            directive.line,
            f"#{directive.text} inside a statement",
            "put whole statements, with balanced braces, into each branch",
        )
    if directive.text == "endif":
        depths.pop()


def _directive(path: str, line: list[_Token], language: str) -> None:
    """Check a line that begins with #."""
    number, name = line[0].line, line[1].text if len(line) > 1 else ""
    rest = line[2:]
    if name and name not in DIRECTIVES:
        _refuse(path, number, f"#{name}", f"use #{', #'.join(DIRECTIVES)} only")
    if name == "include":
        header = "".join(token.text for token in rest)
        if not (header.startswith("<") and header.endswith(">") and header[1:-1] in INCLUDES[language]):
            _refuse(path, number, f"#include {header}", f"include <{'>, <'.join(sorted(INCLUDES[language]))}> only")
        return
    if name == "pragma":
        if any(token.text == "num_threads" for token in rest):
            _refuse(path, number, "num_threads", "use all of torch's threads: another number slows every other kernel")
        words = " ".join(token.text for token in rest)
        if not PRAGMAS.fullmatch(re.sub(r"\s*([():,])\s*", r"\1", words)):
            _refuse(path, number, f"#pragma {words}", "use #pragma omp parallel/for/simd, GCC unroll, GCC ivdep or unroll")
        return
    for token in rest:
        if token.text in ("#", "##"):
            _refuse(path, token.line, "# or ## in a macro", "write the names out")
        if name == "define" and token is rest[0] and (token.text in KEYWORDS or token.text in FORBIDDEN):
            _refuse(path, token.line, f"a macro named {token.text}", "choose another name")
        if token.text.startswith("__has_"):
            _refuse(path, token.line, token.text, "test for __AVX512F__, __GNUC__ and the like only")
    if name == "define":
        texts = [token.text for token in rest]
        hiding = {"{", "}", ";", "constexpr", "extern", "namespace", "struct"} & set(texts[1:])
        if hiding or any(
            text == "static" and following != "inline" for text, following in zip(texts, [*texts[1:], ""], strict=True)
        ):
            _refuse(path, number, "a macro that declares, or holds braces or semicolons", "use functions and constexpr constants")
        _names(path, rest, language)


def _names(path: str, tokens: list[_Token], language: str) -> None:
    for at, token in enumerate(tokens):
        before = tokens[at - 1].text if at else ""
        after = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if token.kind == "string" and not (before == "extern" and token.text == '"C"'):
            _refuse(path, token.line, f"the string {token.text[:40]}", "kernels need no text")
        if token.text in ("<<<", ">>>", "#", "##"):
            _refuse(path, token.line, token.text, "kernels are launched by us; directives begin a line")
        if token.text == "[" and after == "[":
            _refuse(path, token.line, "an attribute [[...]]", "remove it")
        if token.kind != "name":
            continue
        if token.text == "extern" and not (after == '"C"' or (language == "cuda" and after == "__shared__")):
            _refuse(path, token.line, "extern", 'write extern "C" before the entry function')
        member = before in (".", "->")
        used = token.text not in _WORDS or (
            language == "cpp" and (after == "(" or before in ("::", "&"))
        )  # NVRTC has no host functions
        if (token.text in FORBIDDEN and used and not member) or _FAMILIES.fullmatch(token.text):
            _refuse(path, token.line, token.text, "a kernel computes on its arguments and nothing else")
        if token.text.startswith("__") and not _UNDERSCORED.fullmatch(token.text):
            _refuse(path, token.line, token.text, "it is not among the compiler's names that kernels may use")
        if token.text == "__attribute__":
            _attribute(path, tokens, at)


def _attribute(path: str, tokens: list[_Token], at: int) -> None:
    depth, end = 0, at + 1
    while end < len(tokens):
        depth += (tokens[end].text == "(") - (tokens[end].text == ")")
        if tokens[end].kind == "name" and depth == 2 and tokens[end].text.strip("_") not in ATTRIBUTES:
            _refuse(path, tokens[end].line, f"__attribute__(({tokens[end].text}))", f"use {', '.join(sorted(ATTRIBUTES))} only")
        if depth == 0:
            break
        end += 1


def _declarations(path: str, tokens: list[_Token]) -> None:
    """No objects outside functions but constexpr ones, no prototypes, no state inside functions."""
    start, at = 0, 0
    while at < len(tokens):
        text = tokens[at].text
        if text == ";":
            _outer(path, tokens[start:at])
            start = at + 1
        elif text == "{":
            words = [token.text for token in tokens[start:at]]
            if words[:1] == ["namespace"] or words == ["extern", '"C"'] or words == ["inline", "namespace"]:
                start = at + 1
            else:
                at = _body(path, tokens, start, at)
                start = at + 1
        elif text == "}":
            start = at + 1  # of a namespace
        at += 1
    if start < len(tokens):
        _outer(path, tokens[start:])


def _outer(path: str, statement: list[_Token]) -> None:
    words = [token.text for token in statement]
    if not words or words[0] in ("using", "typedef", "static_assert") or "constexpr" in words[:3]:
        return
    _refuse(
        path,
        statement[0].line,
        f"the declaration `{' '.join(words[:8])}` outside a function",
        "only constexpr objects, types and function definitions may stand there; define functions before their use",
    )


def _body(path: str, tokens: list[_Token], start: int, at: int) -> int:
    """Check the braces that open at `at`; the index of the token that ends the declaration."""
    head = [token.text for token in tokens[start:at]]
    end, depth = at, 0
    while end < len(tokens):
        depth += (tokens[end].text == "{") - (tokens[end].text == "}")
        if tokens[end].text == "static" and tokens[end + 1].text != "constexpr" and depth:
            _refuse(
                path, tokens[end].line, "a static object or member", "keep no state between calls; static constexpr is allowed"
            )
        if depth == 0:
            break
        end += 1
    if "constexpr" in head[:3] and "(" not in head:
        return end
    if any(word in head for word in ("struct", "class", "union", "enum")) and "(" not in _without_attributes(head):
        follow = tokens[end + 1].text if end + 1 < len(tokens) else ""
        if follow != ";" and head[0] != "typedef":
            _refuse(path, tokens[at].line, "an object declared with its type", "end the type with `};`")
        return end + 1 if follow == ";" else end
    plain = _without_attributes(head)
    if "(" not in plain or "=" in plain[: plain.index("(")] or (plain[-1] not in (")", "const", "noexcept")):
        _refuse(
            path,
            tokens[start].line,
            f"the declaration `{' '.join(head[:8])}` outside a function",
            "only constexpr objects, types and function definitions may stand there",
        )
    return end


def _without_attributes(words: list[str]) -> list[str]:
    """`words` without __attribute__((...)), __launch_bounds__(...) and alignas(...)."""
    out, at = [], 0
    while at < len(words):
        if words[at] in ("__attribute__", "__launch_bounds__", "alignas") and at + 1 < len(words) and words[at + 1] == "(":
            depth, at = 1, at + 2
            while at < len(words) and depth:
                depth += (words[at] == "(") - (words[at] == ")")
                at += 1
        else:
            out.append(words[at])
            at += 1
    return out


def _refuse(path: str, line: int, what: str, step: str) -> NoReturn:
    raise StaticCheckError(f"{path} line {line}: {what} is not allowed; {step}")
