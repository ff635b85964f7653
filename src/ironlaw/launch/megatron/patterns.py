"""Megatron's notations for layers: lists such as ``([0]*3+[1]*12)``, and stage layouts such as ``Et*2|(tt|)*5t|tmL``, read and written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.estimate.pipeline.chunks import layers_of_chunk
from ironlaw.launch.megatron.arguments import whole_number

MAX_LENGTH = 10_000  # layers; more than any model has
MOST_QUOTED = 100  # characters of a list in an error
FEW = 3  # equal chunks that a layout spells out


def routed_layers(text: str, layers: int, flag: str) -> list[bool]:
    """True for each routed layer of a frequency N (every Nth, from the first) or of a list of zeros and ones.

    >>> routed_layers("([0]*1+[1]*2)", 3, "--moe-layer-freq"), routed_layers("2", 4, "--moe-layer-freq")
    ([False, True, True], [True, False, True, False])
    """
    if not re.search(r"[\[,]", text):
        every = whole_number(text, flag)
        return [i % every == 0 for i in range(layers)]
    tokens = re.findall(r"\d+|[\[\](),+*]|\S", text)
    listed, at = _sum(tokens, 0, flag, 0)
    if at != len(tokens):
        raise _unreadable(tokens, flag)
    if len(listed) != layers:
        raise QuestionError(f"{flag} {_quoted(text)} lists {len(listed)} layers, the model has {layers}")
    return [v != 0 for v in listed]


def _sum(tokens: list[str], at: int, flag: str, depth: int) -> tuple[list[int], int]:
    """The list that starts at ``at``, terms joined by +, and where it ends."""
    listed: list[int] = []
    while True:
        part, at = _product(tokens, at, flag, depth)
        listed += part
        if len(listed) > MAX_LENGTH:
            raise ValueRangeError(f"{flag} lists more than {MAX_LENGTH:,} layers")
        if at >= len(tokens) or tokens[at] != "+":
            return listed, at
        at += 1


def _product(tokens: list[str], at: int, flag: str, depth: int) -> tuple[list[int], int]:
    """One term of such a list, with its repeats, and where it ends."""
    if at >= len(tokens) or depth > 20:
        raise _unreadable(tokens, flag)
    if tokens[at] == "(":
        listed, at = _sum(tokens, at + 1, flag, depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise _unreadable(tokens, flag)
    elif tokens[at] == "[":
        try:
            close = tokens.index("]", at)
        except ValueError:
            raise _unreadable(tokens, flag) from None
        items = [t for t in tokens[at + 1 : close] if t != ","]
        if not all(t in ("0", "1") for t in items):
            raise _unreadable(tokens, flag)
        listed, at = [int(t) for t in items], close
    else:
        raise _unreadable(tokens, flag)
    at += 1
    while at + 1 < len(tokens) and tokens[at] == "*" and tokens[at + 1].isdecimal() and len(tokens[at + 1]) < 20:
        times = int(tokens[at + 1])
        if len(listed) * times > MAX_LENGTH:
            raise ValueRangeError(f"{flag} lists more than {MAX_LENGTH:,} layers")
        listed, at = listed * times, at + 2
    return listed, at


def _quoted(text: str) -> str:
    """A list or layout as an error quotes it."""
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}..."


def _unreadable(tokens: list[str], flag: str) -> QuestionError:
    return QuestionError(f"{flag} {_quoted(''.join(tokens[:MOST_QUOTED]))}: cannot be read as a list such as ([0]*3+[1]*12)")


def layers_by_stage(layout: str, pp: int, layers: int) -> tuple[list[int], int, int | None]:
    """From a layout: layers of each pipeline rank, chunks of a rank, and the rank of the multi-token prediction layers.

    E is the embedding, t a layer, m a layer that predicts further tokens, L the loss. Rank r has chunks r, r + pp, ...

    >>> layers_by_stage("Et*2|(tt|)*5t|tmL", 4, 14)
    ([4, 4, 3, 3], 2, 3)
    """
    flag = "--pipeline-model-parallel-layout"
    text = re.sub(r"[\s,]", "", layout)
    for _ in range(20):
        opened = re.search(r"\(([^()]*)\)(?:\*(\d+))?", text) or re.search(r"([Etm L|])\*(\d+)", text)
        if not opened:
            break
        repeated = opened[1] * int(opened[2] or 1) if len(opened[2] or "") < 6 else ""
        if not repeated or len(text) + len(repeated) > MAX_LENGTH:
            raise QuestionError(f"{flag} {_quoted(layout)}: not a layout such as Ett|tt|ttL, or more than {MAX_LENGTH:,} layers")
        text = text[: opened.start()] + repeated + text[opened.end() :]
    if not re.fullmatch(r"E[t|]*m*[tm|]*L", text):
        raise QuestionError(f"{flag} {_quoted(layout)}: expected E first, L last, t and m between, and | between stages")
    chunks = text.split("|")
    if len(chunks) % pp:
        raise QuestionError(f"{flag} {_quoted(layout)}: {len(chunks)} stages are not a multiple of pp {pp}")
    if text.count("t") != layers:
        raise QuestionError(f"{flag} {_quoted(layout)}: {text.count('t')} layers, but --num-layers is {layers}")
    predicting = next((at % pp for at, chunk in enumerate(chunks) if "m" in chunk), None)
    return [sum(c.count("t") for c in chunks[rank::pp]) for rank in range(pp)], len(chunks) // pp, predicting


def stage_flags(layers: Sequence[int], vpp: int = 1, predicting: int = 0) -> list[str]:
    """The arguments that give each pipeline rank its ``layers``; none where all ranks and chunks have equally many.

    Where only the first and last stage differ, Megatron has an argument for each; other splits need a layout, which gives chunks too.
    ``predicting`` counts layers that predict further tokens. The layers of chunks are those of the estimate.

    >>> stage_flags([9, 9, 9, 5]), stage_flags([3, 4, 3, 2], predicting=1)
    (['--decoder-last-pipeline-num-layers', '5'], ['--pipeline-model-parallel-layout', 'Ettt|tttt|ttt|ttmL'])
    """
    if len(set(layers)) == 1 and layers[0] % vpp == 0:
        return []
    inner = set(layers[1:-1]) or {layers[-1]}
    if len(inner) == 1 and all(n > 0 and n % vpp == 0 for n in layers):
        usual = inner.pop()
        ends = [("first", layers[0]), ("last", layers[-1])]
        return [part for end, n in ends if n != usual for part in (f"--decoder-{end}-pipeline-num-layers", str(n))]
    chunks = [[] for _ in range(vpp)]  # type: list[list[str]]
    for rank, n in enumerate(layers):
        for at, chunk in enumerate(chunks):
            chunk.append("t" * int(layers_of_chunk(float(n), float(vpp), float(at), vpp > 1 and rank == 0)))
    first, *middle, last = [part for chunk in chunks for part in chunk]
    return ["--pipeline-model-parallel-layout", f"E{first}|{_repeated(middle)}{last}{'m' * predicting}L"]


def _repeated(chunks: Sequence[str]) -> str:
    """Chunks with their bars; more than three equal ones as a repetition.

    >>> _repeated(["tt", "tt", "tt", "tt", "t"])
    '(tt|)*4t|'
    """
    runs = [(chunk, len(list(same))) for chunk, same in groupby(chunks)]
    return "".join(f"({chunk}|)*{times}" if times > FEW else f"{chunk}|" * times for chunk, times in runs)
