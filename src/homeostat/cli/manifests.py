"""Declarations from files: YAML or JSON, several documents a file, lists taken apart."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from homeostat.insight.planning import Document

F = TypeVar("F", bound=Callable[..., Any])

SUFFIXES = (".yaml", ".yml", ".json")


def manifest_options(required: bool = True) -> Callable[[F], F]:
    """Adds -f, -R, --prune and --force-conflicts: what `plan`, `apply` and `diff` have in common."""
    options = [
        click.option(
            "-f", "--filename", "files", metavar="PATH", multiple=True, required=required,
            help="A file, a directory, or - for standard input; may be repeated.",
        ),
        click.option("-R", "--recursive", is_flag=True, help="Directories with all that is below them."),
        click.option(
            "--prune", metavar="SELECTOR", default="",
            help="Also delete what has these labels, was applied by this command, and is not declared any more.",
        ),
        click.option("--force-conflicts", "force", is_flag=True, help="Take over fields that others own."),
    ]  # fmt: skip

    def decorate(command: F) -> F:
        found: Any = command
        for option in reversed(options):
            found = option(found)
        return found  # type: ignore[no-any-return]

    return decorate


def composer_option(command: F) -> F:
    """Adds --provider: composers whose code is here, for the plan to show what they make of it."""
    option = click.option(
        "--provider", "own", metavar="FILE|MODULE[:CLASS]", multiple=True,
        help="A composer that does not run in the server, as `homeostat controllers` is given it: it shows what would become of what it declares.",
    )  # fmt: skip
    return option(command)


def read(places: Sequence[str], recursive: bool = False) -> list[Document]:
    """Every object that the files, directories and `-` (standard input) declare, in their order.

    Says the file, the document and what is wrong where something is; one object declared twice is wrong.
    """
    found: list[Document] = []
    for place in places:
        for name, text in _texts(place, recursive):
            found += _documents(name, text)
    if not found:
        raise click.ClickException(f"{', '.join(places)}: nothing is declared there")
    seen: dict[tuple[str, ...], str] = {}
    for document in found:
        key = (document.api_version, document.kind, document.obj["metadata"].get("namespace", ""), document.name)
        if key in seen:
            raise click.ClickException(
                f"{document.source}: {document.kind} {document.name} is declared in {seen[key]} too"
            )
        seen[key] = document.source
    return found


def _texts(place: str, recursive: bool) -> Iterator[tuple[str, bytes]]:
    if place == "-":
        yield "standard input", sys.stdin.buffer.read()
        return
    if "://" in place:
        raise click.ClickException(f"{place} is no file or directory: fetch it first, as in curl -fsSL {place} | homeostat … -f -")
    path = Path(place)
    try:
        if path.is_dir():
            inside = path.rglob("*") if recursive else path.iterdir()
            for file in sorted(f for f in inside if f.suffix in SUFFIXES and f.is_file()):
                yield str(file), file.read_bytes()
        else:
            yield place, path.read_bytes()
    except OSError as error:
        raise click.ClickException(f"{error.filename or place}: {error.strerror}") from None


def _documents(name: str, text: bytes) -> Iterator[Document]:
    from homeostat.model.encoding import Malformed, load_all_yaml

    try:
        values = load_all_yaml(text)
    except Malformed as error:
        raise click.ClickException(f"{name}: {error}") from None
    for number, value in enumerate(values, 1):
        source = name if len(values) == 1 else f"{name}, document {number}"
        if (
            isinstance(value, dict)
            and str(value.get("kind", "")).endswith("List")
            and isinstance(value.get("items"), list)
        ):
            for place, item in enumerate(value["items"], 1):
                yield _checked(item, f"{source}, item {place}")
        else:
            yield _checked(value, source)


def _checked(value: Any, source: str) -> Document:
    if not isinstance(value, dict):
        raise click.ClickException(
            f"{source}: it is no object: a mapping with apiVersion, kind and metadata is expected"
        )
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            raise click.ClickException(f"{source}: {field} is missing")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise click.ClickException(
            f"{source}: {value['kind']} has no metadata.name, and what has no name cannot be applied"
        )
    from homeostat.insight.planning import Document

    return Document(value, source)
