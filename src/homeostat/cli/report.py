"""`homeostat report`: evidence of how what is declared is kept, as Markdown, JSON or HTML."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import emit

if TYPE_CHECKING:
    from homeostat.cli.evidence import Evidence, Item
    from homeostat.client import Client


@click.command()
@click.option("-l", "--selector", required=True, help="The labels of what the report is about: control=encryption.")
@click.option("--changes", type=click.IntRange(0, 100), default=5, show_default=True, help="Last declarations told of each.")
@click.option("-o", "--output", type=click.Choice(["markdown", "html", "json", "yaml"]), default="markdown", show_default=True)
@click.option("-f", "--file", type=click.Path(dir_okay=False, path_type=Path), help="Write it there, instead of printing it.")
@click.option("--strict", is_flag=True, help="Exit with 1 where something is not met, unknown, or excepted.")
@server_options()
def command(server: Connection, selector: str, changes: int, output: str, file: Path | None, strict: bool) -> None:
    """Give evidence, for all that has certain labels: declared what and by whom, observed what and when, so since when, and every
    exception: observe-only, freezes, halts, holds, approvals.

    Label what belongs to a control (`control: encryption`), and the report is about it. Secrets are masked. The HTML is one file
    that loads nothing from anywhere.

    \b
    Examples:
      homeostat report -l control=encryption
      homeostat report -l control=encryption -o html -f encryption.html
      homeostat report -l 'control in (access, encryption)' -o json --strict

    Exits with 0; 1 where nothing has these labels, or with --strict, something is not met.
    """

    if not selector.strip():
        raise click.UsageError("--selector is empty: an empty selector selects nothing")

    async def read(client: Client) -> Evidence:
        from homeostat.cli.evidence import gather
        from homeostat.cli.kinds import served_kinds

        return await gather(client, await served_kinds(client), selector, server.namespace, changes)

    found = server.run(read, timeout=None)
    if not found.items:
        raise click.ClickException(f"nothing that the loop keeps has the labels {selector}: there is no evidence")
    if output in ("json", "yaml") and file is None:
        emit(found.data(), output)
    else:
        _put(_text(found, output), file)
    excepted = sum(bool(item.exceptions) for item in found.items)
    if strict and (found.count("met") < len(found.items) or excepted):
        raise click.exceptions.Exit(1)


def _text(found: Evidence, output: str) -> str:
    if output == "markdown":
        return "\n".join(_markdown(found)) + "\n"
    if output == "html":
        return _page(found)
    import orjson

    from homeostat.model.encoding import encode_yaml

    if output == "yaml":
        return encode_yaml(found.data()).decode()
    return orjson.dumps(found.data(), option=orjson.OPT_INDENT_2).decode() + "\n"


def _put(text: str, file: Path | None) -> None:
    if file is None:
        click.echo(text, nl=False)
        return
    file.write_text(text)
    click.echo(f"written to {file}", err=True)


def _facts(item: Item) -> Iterator[tuple[str, str]]:
    """What is said of a thing, row by row: the same in every form."""
    declared, observed = item.declared, item.observed
    by = f" by {declared['by']}" if declared["by"] else ""
    mark = f", change set {declared['changeSet']}" if declared["changeSet"] else ""
    yield "Verdict", f"{item.verdict} ({item.health}{', since ' + item.since if item.since else ''})"
    if item.message:
        yield "Because", item.message
    yield "Declared", f"generation {declared['generation']}{by}{mark}; from {item.source or 'unknown'}; created {declared['created']}"
    seen = observed["generation"]
    looked = f"; last whole pass {observed['lastPass']}" if observed["lastPass"] else ""
    yield "Observed", "never" if seen is None else f"generation {seen}, found so since {observed['at'] or 'unknown'}{looked}"
    if observed["differs"]:
        yield "Differs", f"({observed['cause']}) since {observed['differsSince']}: {'; '.join(observed['differs'])}"
    if observed["repairedAt"]:
        yield "Last repaired", observed["repairedAt"]
    for text in item.exceptions:
        yield "Exception", text


def _change(change: dict[str, Any]) -> str:
    fields = f": {', '.join(change['fields'])}" if change["fields"] else ""
    mark = f" ({change['changeSet']})" if change["changeSet"] else ""
    return f"{change['time'] or '?'} revision {change['revision']}: {change['change']}{fields} by {change['by'] or '?'}{mark}"


def _summary(found: Evidence) -> str:
    excepted = sum(bool(item.exceptions) for item in found.items)
    return (
        f"{found.count('met')} of {len(found.items)} met, {found.count('not met')} not met, "
        f"{found.count('unknown')} unknown; {excepted} with exceptions"
    )


def _markdown(found: Evidence) -> Iterator[str]:
    yield f"# Evidence: {_plain(found.selector)}"
    yield ""
    yield f"{found.time}, server {_plain(found.server)}, revision {found.revision}. {_summary(found)}."
    yield ""
    yield "| thing | verdict | since | exceptions |"
    yield "|---|---|---|---|"
    for item in found.items:
        yield f"| {_plain(item.title)} | {item.verdict} | {item.since} | {len(item.exceptions)} |"
    for item in found.items:
        yield ""
        yield f"## {_plain(item.title)}"
        yield ""
        for name, text in _facts(item):
            yield f"- **{name}**: {_plain(text)}"
        yield ""
        yield from (f"    {line}" for line in item.declared["fields"])
        if item.changes:
            yield ""
            yield from (f"- {_plain(_change(change))}" for change in item.changes)


def _plain(text: str) -> str:
    """Text that stays text, whoever chose it: nothing in it is Markdown or HTML."""
    flat = " ".join(text.split())
    return "".join(f"\\{char}" if char in "\\`*_[]|<>#!~&" else char for char in flat)


_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1d2330}
table{border-collapse:collapse;width:100%}td,th{border:1px solid #ccd;padding:.3rem .6rem;text-align:left;vertical-align:top}
pre{background:#f4f5f8;padding:.7rem;overflow-x:auto}.met{color:#15702f}.not{color:#b3261e}.unknown{color:#8a6100}
@media(prefers-color-scheme:dark){body{background:#14171f;color:#dde}pre{background:#1d212c}td,th{border-color:#3a4050}}"""


def _page(found: Evidence) -> str:
    title = html.escape(f"Evidence: {found.selector}")
    head = "".join(
        f'<tr><td><a href="#i{number}">{html.escape(item.title)}</a></td>'
        f'<td class="{item.verdict.split()[0]}">{html.escape(item.verdict)}</td>'
        f"<td>{html.escape(item.since)}</td><td>{len(item.exceptions)}</td></tr>"
        for number, item in enumerate(found.items)
    )
    about = html.escape(f"{found.time}, server {found.server}, revision {found.revision}. {_summary(found)}.")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1><p>{about}</p>"
        f"<table><tr><th>thing</th><th>verdict</th><th>since</th><th>exceptions</th></tr>{head}</table>"
        + "".join(_section(number, item) for number, item in enumerate(found.items))
        + "</body></html>\n"
    )


def _section(number: int, item: Item) -> str:
    rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in _facts(item))
    fields = html.escape("\n".join(item.declared["fields"]))
    changes = "".join(f"<li>{html.escape(_change(change))}</li>" for change in item.changes)
    return (
        f'<h2 id="i{number}">{html.escape(item.title)}</h2><table>{rows}</table><pre>{fields}</pre>'
        + (f"<ul>{changes}</ul>" if changes else "")
    )
