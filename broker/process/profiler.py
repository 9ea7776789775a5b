"""A sampling profiler inside the process: where its time goes, as a flame graph in one HTML file.

The system's profiling timer interrupts the main thread after so much processor time; the handler notes the stack, which takes
a few microseconds. What threads compute counts to whatever the loop is at then; waiting costs nothing and is not shown.
"""

import signal
from collections.abc import Iterator
from html import escape
from types import CodeType, FrameType
from typing import Final

INTERVAL_S: Final = 0.005
"""Of processor time, between two samples."""
DEPTH_MAX: Final = 200
STACKS_MAX: Final = 50_000
"""Different stacks that are kept; further ones are counted as `ELSE`."""
ELSE: Final = "(stacks beyond the limit)"
SHARE_MIN: Final = 0.0005
"""Frames with less of the whole are not drawn."""
FRAME_HEIGHT_PX: Final = 18
HUES: Final = 50

Stack = tuple[CodeType, ...]
"""Innermost first."""


class Profiler:
    """`start`, some work, `stop`; in the main thread."""

    def __init__(self) -> None:
        self.samples: dict[Stack, int] = {}
        self.left_out = 0

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        self.note(frame)

    def note(self, frame: FrameType | None) -> None:
        stack: list[CodeType] = []
        while frame is not None and len(stack) < DEPTH_MAX:
            stack.append(frame.f_code)
            frame = frame.f_back
        key = tuple(stack)
        if key in self.samples or len(self.samples) < STACKS_MAX:
            self.samples[key] = self.samples.get(key, 0) + 1
        else:
            self.left_out += 1

    def folded(self) -> dict[tuple[str, ...], int]:
        """Stacks by name, outermost first."""
        found: dict[tuple[str, ...], int] = {}
        for stack, count in self.samples.items():
            names = tuple(label(code) for code in reversed(stack))
            found[names] = found.get(names, 0) + count
        if self.left_out:
            found[ELSE,] = self.left_out
        return found


def label(code: CodeType) -> str:
    """Folder, file and function: broker/network/connection.py Connection._serve."""
    return f"{'/'.join(code.co_filename.split('/')[-2:])} {code.co_qualname}"


def folded_lines(stacks: dict[tuple[str, ...], int]) -> str:
    """A line a stack, frames between semicolons, then how often: what other tools for flame graphs read."""
    return "".join(f"{';'.join(names)} {count}\n" for names, count in sorted(stacks.items()))


class Node:
    """A frame with what was called from it."""

    __slots__ = ("callees", "count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.callees: dict[str, Node] = {}


def tree_of(stacks: dict[tuple[str, ...], int]) -> Node:
    root = Node("all")
    for names, count in sorted(stacks.items()):
        node = root
        node.count += count
        for name in names:
            node = node.callees.setdefault(name, Node(name))
            node.count += count
    return root


def flame_graph(stacks: dict[tuple[str, ...], int], title: str) -> str:
    """One HTML file that needs nothing else: a click zooms, a click on the lowest frame shows all again."""
    root = tree_of(stacks)
    boxes = list(boxes_of(root)) if root.count else []
    depth = max((row for _, _, row, _ in boxes), default=0) + 1
    rows = "".join(_box(node, start, row, share, root.count) for node, start, row, share in boxes)
    seconds = root.count * INTERVAL_S
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"</head><body><h1>{escape(title)}</h1><p>{root.count} samples, {seconds:.1f} s of processor time. Width is time; a frame lies "
        f'on the one that called it.</p><div id="view"><div id="frames" style="height:{depth * FRAME_HEIGHT_PX}px">{rows}</div></div>'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def boxes_of(root: Node) -> Iterator[tuple[Node, float, int, float]]:
    """(frame, where it begins, its row from below, its share), of the whole width; the widest call of a frame comes first."""
    waiting = [(root, 0.0, 0)]
    while waiting:
        node, start, row = waiting.pop()
        share = node.count / root.count
        if share < SHARE_MIN:
            continue
        yield node, start, row, share
        for callee in sorted(node.callees.values(), key=lambda each: (-each.count, each.name)):
            waiting.append((callee, start, row + 1))
            start += callee.count / root.count


def _box(node: Node, start: float, row: int, share: float, total: int) -> str:
    name, hue = escape(node.name), sum(node.name.encode()) % HUES
    said = f"{name}: {node.count} samples, {100 * node.count / total:.1f} %"
    return (
        f'<div title="{said}" data-x="{start:.6f}" data-w="{share:.6f}" style="left:{100 * start:.4f}%;width:{100 * share:.4f}%;'
        f'bottom:{row * FRAME_HEIGHT_PX}px;background:hsl({hue},80%,65%)">{name}</div>'
    )


_STYLE: Final = (
    "body{font:13px sans-serif;margin:1em}h1{font-size:18px}#view{overflow:hidden;position:relative}"
    "#frames{position:relative;width:100%}#frames div{position:absolute;height:17px;overflow:hidden;white-space:nowrap;"
    "font:11px/17px monospace;cursor:pointer;box-sizing:border-box;padding-left:2px;border-right:1px solid #fff}"
)
_SCRIPT: Final = (
    "const frames=document.getElementById('frames');frames.addEventListener('click',event=>{const box=event.target;"
    "if(!box.dataset.w)return;const x=+box.dataset.x,w=+box.dataset.w;frames.style.width=100/w+'%';"
    "frames.style.left=-100*x/w+'%';});"
)
