"""Hooks of mkdocs: pages from outside of docs/, notebooks as pages, and pictures that follow the colours of the page.

Links in docs/ are paths in the repository, so that they also work where the Markdown files themselves are shown. A link
to a file outside of docs/ (`../../results/bench.md`) becomes a link to that file's copy on the site.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from website.notebook_pages import to_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Files of the repository that pages link to, by pattern. Markdown becomes pages; other files are copied.
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "SECURITY.md",
    "deploy/*",
    "examples/*/*.py",
    "results/*.json",
    "results/*.md",
    "results/*.svg",
    "results/reproduce/report.html",
    "results/reproduce/tables/*",
)
# Where their copies are on the site.
COPIES = "repository"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_SHORT_CODE = re.compile(r"(?<!<pre>)<code>([^<]{1,24})</code>")
_FENCE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks and the files from outside of docs/."""
    from mkdocs.structure.files import File, InclusionLevel

    for path in sorted(p for pattern in OUTSIDE for p in ROOT.glob(pattern) if p.is_file()):
        uri = f"{COPIES}/{path.relative_to(ROOT).as_posix()}"
        if path.name == "report.html":  # its tables are pages here
            page = path.read_text().replace('.md"', '.html"')
            file = File.generated(config, uri, content=page)
        else:
            file = File.generated(config, uri, abs_src_path=str(path))
        file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        page = to_page(json.loads(path.read_text()), path.name)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    """Rewrite links to files outside of docs/, and put pictures into the page itself."""
    uri = page.file.src_uri
    # The path that the links of this page are relative to.
    source = uri.removeprefix(f"{COPIES}/") if uri.startswith(f"{COPIES}/") else f"docs/{uri}"

    def rewrite(match: re.Match[str]) -> str:
        bang, text, link = match.groups()
        path, _, anchor = link.partition("#")
        if not path or ":" in path.split("/")[0]:
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(path)))
        if bang and target.startswith("docs/pictures/"):
            return _inline(ROOT / target, text)
        if target.startswith("docs/notebooks/") and uri != target.removeprefix("docs/").replace(".ipynb", ".md"):
            target = target.replace(".ipynb", ".md")  # its page; only that page itself links to the file
        place = target.removeprefix("docs/") if target.startswith("docs/") else f"{COPIES}/{target}"
        relative = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        return f"{bang}[{text}]({relative}{'#' + anchor if anchor else ''})"

    parts = _FENCE.split(markdown)
    # Odd parts are code. A line of code by indentation holds no link in our pages.
    return "".join(part if i % 2 else _LINK.sub(rewrite, part) for i, part in enumerate(parts))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    """Mark short names and options, which docs/site.css keeps on one line."""
    return _SHORT_CODE.sub(r'<code class="short">\1</code>', html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - mkdocs'
    """Give the search dialog a name for screen readers, which Material's has not."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def _inline(path: Path, text: str) -> str:
    """Return a picture as part of the page, where the site's style can set its colours."""
    svg = path.read_text().strip()
    svg = "\n".join(line.strip() for line in svg.splitlines() if line.strip())
    return f'<figure class="picture" markdown="0">\n{svg}\n<figcaption>{text}</figcaption>\n</figure>'
