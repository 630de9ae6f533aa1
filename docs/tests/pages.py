"""The pages that people read, taken apart: code blocks, tables, links."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MEMBERS = PROJECT["tool"]["uv"]["workspace"]["members"]
ENGINES = [name for name in MEMBERS if name.startswith("alkstore_") and name != "alkstore_core"]


@dataclass(frozen=True)
class Block:
    """One fenced block of code."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(language):
    """Every block in that language, on all pages."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in re.finditer(r"^```(\w+)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(str(page.relative_to(ROOT)), line, match[1], match[2]))
    return [block for block in found if block.language == language]


def rows(text):
    """The rows of all tables in `text`, headings included: lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


def links(page):
    """The targets of all links on the page that lead into this repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))
    return [target for target in found if not re.match(r"[a-z]+:", target)]
