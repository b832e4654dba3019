"""What mkdocs.yml cannot say: equations as MathML, and pages that are written by commands or live outside docs/.

Equations are blocks of LaTeX, which GitHub renders too:

    ```math
    P = N I + \\tau 1
    ```
"""

import logging
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
EXPERIMENTS_MARK, PAPER_MARK = "<!-- experiments -->", "<!-- tables and figures -->"
FROM_ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?((?:https?:)?//[^"' >]+)""")
LOG = logging.getLogger("mkdocs.hooks.offline")


def equation(source: str, *_: Any, **__: Any) -> str:
    """Return a block of LaTeX as MathML, which browsers show without scripts or fonts of ours."""
    return f'<div class="math">{convert(source, display="block")}</div>'


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the `math` block, and pages to the navigation."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "math", "format": equation})
    docs, nav = Path(config.docs_dir), config.nav
    assert nav is not None
    _section(nav, "The paper beside ours").extend(
        f"experiments/{p.name}" for p in sorted(docs.glob("experiments/*.md"))
    )
    _section(nav, "Project").extend(ROOT_PAGES)
    listed = set(_pages(nav))
    others = sorted({str(path.relative_to(docs)) for path in docs.rglob("*.md")} - listed)
    if others:
        nav.append({"More": others})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root."""
    for name, source in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the tables of experiments and of what the paper has."""
    if EXPERIMENTS_MARK not in markdown:
        return markdown
    from infoform.experiments.paper import paper_table

    pages = Path(config.docs_dir) / "experiments"
    return markdown.replace(EXPERIMENTS_MARK, experiments_table(pages)).replace(PAPER_MARK, paper_table(pages))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Warn, which a strict build takes for an error, of anything a page would load from another host."""
    for address in from_elsewhere(output):
        LOG.warning("%s loads %s; a page must work without a network", page.file.src_uri, address)
    return output


def from_elsewhere(html: str) -> list[str]:
    """Return the addresses of scripts, styles and images that are not the site's own."""
    return [address for address in FROM_ELSEWHERE.findall(html) if "www.w3.org" not in address]


def experiments_table(folder: Path) -> str:
    """Return what each experiment reproduces, with a link to its page where there is one."""
    from infoform.experiments import EXPERIMENTS, get_experiment

    lines = ["| experiment | reproduces | what it measures |", "|---|---|---|"]
    for name in EXPERIMENTS:
        one = get_experiment(name)
        title = f"[{name}](experiments/{name}.md)" if (folder / f"{name}.md").exists() else f"`{name}`: not run yet"
        lines.append(f"| {title} | {one.reproduces} | {one.summary} |")
    return "\n".join(lines)


def _section(nav: list[Any], title: str) -> list[Any]:
    section: list[Any] = next(entry[title] for entry in nav if title in entry)
    return section


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in _pages(entry)]
