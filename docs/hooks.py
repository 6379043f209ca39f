"""For mkdocs: a link to a file of the repository outside the documentation is shown as that file's name."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^]]*)\]\((?:\.\./)+([^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401 - mkdocs has no annotations
    """Replace such links; those between pages in folders stay.

    Args:
        markdown: the page.
        page: where it is.
    """
    depth = page.file.src_uri.count("/")

    def shown(found: re.Match[str]) -> str:
        above = found[0].count("../", found[0].index("]("))
        return found[0] if above <= depth else f"`{found[2]}`"

    return _OUTSIDE.sub(shown, markdown)
