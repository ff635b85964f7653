"""An answer in a notebook: its verdict and its first screen, with a style of its own and no script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from htpy import Node, div, p, strong, style
from markupsafe import Markup

from ironlaw.page import estimate, plan
from ironlaw.page.report import css
from ironlaw.page.views import view_of


def card(verb: str, answer: Mapping[str, Any]) -> str:
    """The first screen of an estimate, or the plans of a search, below the verdict."""
    view = view_of(verb, answer)
    content: Node = None
    if verb == "plan" and answer["plans"]:
        content = plan.plans_block(answer)
    elif verb == "estimate" and answer["step"]["seconds"] is not None:
        content = estimate.first_screen(answer)
    return str(
        div(".ironlaw", style="background:#fff;padding:16px;max-width:960px")[
            style[Markup(css("style.css"))],
            p(".subject")[view.subject],
            p(style="font-size:20px;line-height:28px")[strong[view.verdict]],
            div(".lead")[view.lead],
            div(".view")[content],
        ]
    )
