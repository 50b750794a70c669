"""Pages of the site that are made from code when it is built: commands, kinds, metrics, settings; and the home page from the README.

mkdocs calls `on_config` and `on_files` (see `hooks` in mkdocs.yml). None of these pages is a file, so none can be out of date.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "homeostat"
ROOMS = ("api", "store", "client", "loop", "guards", "providers", "sources", "gpu", "web", "cli")
KINDRED = ("providers", "guards", "gpu", "sources")
"""The rooms that bring kinds."""
INTERNAL = "composed.homeostat.dev"
"""The group of what is never declared: the children of a composer, while they are judged."""

# The page of commands


def commands() -> str:
    """Every command with its arguments, options and examples."""
    from homeostat.cli import main

    lines = ["# Commands", "", "What `--help` says, of every command. [The command line](../cli.md) has what is the same for all of them.", ""]
    for path, command in all_commands(main, ("homeostat",)):
        lines += [f"## {' '.join(path)}", "", *_command(path, command), ""]
    return "\n".join(lines)


def all_commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it, each by the words that call it."""
    import click

    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command, info_name=path[-1]) as ctx:
            for name in command.list_commands(ctx):
                found = command.get_command(ctx, name)
                assert found is not None
                yield from all_commands(found, (*path, name))


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    import inspect

    import click

    with click.Context(command, info_name=" ".join(path)) as ctx:
        usage = " ".join(command.collect_usage_pieces(ctx))
        yield f"```\n{' '.join(path)} {usage}\n```\n"
        for part in inspect.cleandoc(command.help or "").split("\n\n"):
            head, _, rest = part.removeprefix("\b\n").partition("\n")
            shown = f"{head}\n\n```sh\n{inspect.cleandoc(rest)}\n```" if part.startswith("\b") else re.sub(r"\s*\n\s*", " ", part)
            yield _escaped(shown) + "\n" if not part.startswith("\b") else shown + "\n"
        rows = [record for option in command.get_params(ctx) if (record := option.get_help_record(ctx)) and "--help" not in record[0]]
        if rows:
            yield "| option | |\n|---|---|"
            yield from (f"| `{_cell(name)}` | {_cell(_escaped(text))} |" for name, text in rows)


def _escaped(text: str) -> str:
    """Text for people in Markdown: what looks like HTML outside of `code` is shown as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*_\[])", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


# The page of kinds


def kinds() -> str:
    """Every kind of ours with its fields, as the schema says them."""
    from homeostat.model.kinds import crd_for

    lines = ["# Kinds", "", "All kinds that Homeostat brings, with every field of their specs. `kubectl explain KIND.spec` says the same."]
    for info in all_kinds():
        version = crd_for(info)["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        lines += ["", f"## {info.kind}", "", f"`{info.api_version}`, {info.scope.lower()}. {_escaped(schema.get('description', ''))}", ""]
        lines += ["| field | type | |", "|---|---|---|"]
        lines += [f"| `{path}` | {kind} | {_cell(text)} |" for path, kind, text in fields(schema["properties"].get("spec", {}))]
    return "\n".join(lines) + "\n"


def all_kinds() -> list[Any]:
    """The KindInfo of every provider, composer and plain kind in the package."""
    import homeostat
    from homeostat.loop.compose import Composer
    from homeostat.loop.provider import Provider
    from homeostat.model.kinds import KindInfo

    for module in pkgutil.walk_packages(homeostat.__path__, "homeostat."):
        if module.name.split(".")[1] in KINDRED:
            importlib.import_module(module.name)
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("homeostat.") and name.split(".")[1] in KINDRED:
            for thing in vars(module).values():
                kept = isinstance(thing, type) and issubclass(thing, (Provider, Composer)) and "info" in vars(thing)
                info = getattr(thing, "info", None) if kept else thing
                if isinstance(info, KindInfo) and info.group.endswith("homeostat.dev") and info.group != INTERNAL:
                    found[info.name] = info
    return sorted(found.values(), key=lambda info: (info.group, info.kind))


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, type and text of every field below a schema."""
    for name, below in (schema.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        inside, kind = below, below.get("type") or ("integer or string" if below.get("x-kubernetes-int-or-string") else "anything")
        if kind == "array":
            inside = below.get("items", {})
            kind, here = f"list of {inside.get('type', 'anything')}", f"{here}[]"
        elif isinstance(more := below.get("additionalProperties"), dict):
            inside, kind, here = more, f"map of {more.get('type', 'anything')}", f"{here}.*"
        notes = [_escaped(below.get("description", ""))]
        if name in schema.get("required", ()):
            notes.insert(0, "**Required.**")
        if "enum" in below:
            notes.append("One of " + ", ".join(f"`{value}`" for value in below["enum"]) + ".")
        if below.get("default") not in (None, {}, [], ""):
            notes.append(f"Default: `{below['default']}`.")
        yield here, kind, " ".join(note for note in notes if note)
        yield from fields(inside, here)


# The page of metrics

Row = tuple[str, str, str, str]


def metrics() -> str:
    """Every figure, as a server and a loop show them."""
    import asyncio

    lines = ["# Metrics", "", "At `/metrics` of the server, and where `homeostat controllers --metrics` says. [What to watch](../running.md#watch-the-loop)."]
    loop, server = asyncio.run(_figures())
    for title, rows in (("The loop", loop), ("The server", server)):
        lines += ["", f"## {title}", "", "| name | kind | labels | |", "|---|---|---|---|"]
        lines += [f"| `{name}` | {kind} | {labels} | {_cell(text)} |" for name, kind, labels, text in sorted(rows)]
    return "\n".join(lines) + "\n"


async def _figures() -> tuple[list[Row], list[Row]]:
    """Name, kind, labels and text of the figures of a loop and of a server that are there for this."""
    from homeostat.cli.allow import Allowed
    from homeostat.cli.controllers import assemble
    from homeostat.guards import Mode
    from homeostat.loop.figures import Level, Tally
    from homeostat.loop.metrics import Metrics
    from homeostat.testing import control_plane

    counted = Metrics()
    with control_plane() as plane:
        async with plane.client() as client:
            await client.kind("v1", "Namespace").list()
            text = (await client.request("GET", "/metrics", accept="text/plain")).body.decode()
            assemble(client, Allowed.parse(["file:/tmp"]).providers(plane.kubeconfig.parent), Mode.OBSERVE, counted)
            found: list[Any] = list(counted.figures())
    kinds = ("counter" if isinstance(f, Tally) else "gauge" if isinstance(f, Level) else "histogram" for f in found)
    loop = [(f.name, kind, ", ".join(f.labels), f.text) for f, kind in zip(found, kinds, strict=True)]
    server = []
    for name, said in re.findall(r"^# HELP (\S+) (.*)$", text, re.M):
        kind = re.search(rf"^# TYPE {name} (\w+)$", text, re.M)
        labels = re.search(rf"^{name}\{{(.*?)\}}", text, re.M)
        server.append((name, kind[1] if kind else "", ", ".join(re.findall(r'(\w+)="', labels[1])) if labels else "", said))
    return loop, server


# The page of settings


def settings() -> str:
    """Environment variables, what stands on objects, and every constant with a text of its own: each is written once, in code."""
    lines = ["# Settings", "", "Options are at [commands](commands.md), what is set by objects (guards first of all) at [kinds](kinds.md)."]
    lines += ["", "## Environment", "", "| variable | |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in ENVIRONMENT]
    lines += ["", "## Annotations, labels and headers", "", "| name | |", "|---|---|"]
    lines += [f"| `{value}` | {_cell(text)} |" for name, value, text in sorted(_marks(), key=lambda row: str(row[1]))]
    lines += ["", "## Limits and defaults", "", "They are not options: who needs another value writes so, or changes the code."]
    for room in ROOMS:
        rows = [row for file in sorted((SOURCE / room).rglob("*.py")) for row in constants(file) if isinstance(row[1], (int, float))]
        lines += ["", f"### {room}", "", "| name | value | |", "|---|---|---|"]
        lines += [f"| `{name}` | `{value}` | {_cell(_escaped(text))} |" for name, value, text in rows]
    return "\n".join(lines) + "\n"


ENVIRONMENT = [
    ("KUBECONFIG", "Which server commands talk to, and as whom. Default: `~/.homeostat/admin.kubeconfig`."),
    ("NO_COLOR", "Set to anything: no colours, also in a terminal. Elsewhere there never are any."),
    ("HOMEOSTAT_TOKEN", "The token of `homeostat agent --join`; `--token-file` is better."),
    ("OTEL_*", "As OpenTelemetry has them, where its SDK is installed: [traces](../running.md#watch-the-loop)."),
]


def _marks() -> Iterator[tuple[str, Any, str]]:
    for file in SOURCE.rglob("*.py"):
        for name, value, text in constants(file):
            if isinstance(value, str) and re.match(r"([\w.]*homeostat\.dev/(?!.*\bv\d)\S|Homeostat-)", value):
                yield name, value, text


def constants(file: Path) -> Iterator[tuple[str, Any, str]]:
    """Name, value and text of what a module says in capitals, with a text below it."""
    body = ast.parse(file.read_text()).body
    for one, text in itertools.pairwise(body):
        named = isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name) and one.targets[0].id.isupper()
        if named and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            assert isinstance(one, ast.Assign)
            assert isinstance(one.targets[0], ast.Name)
            value = _value(one.value)
            if value is not None and not one.targets[0].id.startswith("_"):
                yield one.targets[0].id, value, text.value.value


def _value(node: ast.expr) -> Any:
    """A number or text, also one that is reckoned: `64 * 1024`; None for anything else."""
    if all(isinstance(part, (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)) for part in ast.walk(node)):
        return eval(compile(ast.Expression(node), "constant", "eval"), {"__builtins__": {}})
    return None


# The site

PAGES = {"reference/commands.md": commands, "reference/kinds.md": kinds, "reference/metrics.md": metrics, "reference/settings.md": settings}


def home() -> str:
    """The README, with its links as they are in the site."""
    return moved((ROOT / "README.md").read_text(), "", "")


def example() -> str:
    """The example of Git as the source of truth."""
    return moved((ROOT / "examples/gitops/README.md").read_text(), "examples/gitops", "examples")


def decisions() -> str:
    """All decisions, by their titles."""
    rows = [f"- [{_title(file)}]({file.name})" for file in sorted((DOCS / "decisions").glob("0*.md"))]
    return "# Decisions\n\nFor what a successor would ask \"why?\" about.\n\n" + "\n".join(rows) + "\n"


def _title(file: Path) -> str:
    return file.read_text().partition("\n")[0].removeprefix("#").strip()


def moved(text: str, folder: str, to: str) -> str:
    """A page of the repository's `folder`, with its links as they must be at `to` in the site. What is not in the site loses its link."""

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target or not target:
            return match[0]
        place = posixpath.normpath(posixpath.join(folder, target))
        place = {"docs/decisions": "docs/decisions/index.md", "examples/gitops/README.md": "docs/examples/gitops.md", "README.md": "docs/index.md"}.get(place, place)
        if place.startswith("docs/") and place.endswith((".md", ".png", ".svg")):
            return f"[{words}]({posixpath.relpath(place.removeprefix('docs/'), to or '.')}{anchor})"
        return f"{words} (`{place}`)" if f"`{place}`" not in words else words

    return re.sub(r"\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", link, text)


def on_config(config: Any) -> Any:
    """Puts the decisions, and the example, into the navigation."""
    for section in config.nav:
        if "Why" in section:
            below = [{_title(file): f"decisions/{file.name}"} for file in sorted((DOCS / "decisions").glob("0*.md"))]
            section["Why"][-1] = {"Decisions": [section["Why"][-1]["Decisions"], *below]}
        if "Guides" in section:
            section["Guides"].append({"An example with Git": "examples/gitops.md"})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds what is made from code."""
    from mkdocs.structure.files import File

    made = {**PAGES, "index.md": home, "decisions/index.md": decisions, "examples/gitops.md": example}
    for path, make in made.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that leave docs/ lead to what is in the site, or are words."""
    if page.file.generated_by is not None:
        return markdown
    folder = posixpath.dirname(page.file.src_uri)
    return re.sub(
        r"\[([^\]]+)\]\(((?:\.\./)+(?!decisions)[^)\s]*)\)",
        lambda match: moved(match[0], posixpath.join("docs", folder), folder) if not _inside(folder, match[2]) else match[0],
        markdown,
    )


def _inside(folder: str, target: str) -> bool:
    return not posixpath.normpath(posixpath.join(folder, target)).startswith("..")
