"""What can be declared of a file or a directory, and what is seen of one."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from homeostat.model.kinds import ListMap, MapAtomic, Rule, Spec
from homeostat.providers.references import Source

FILES_MOST = 1000
"""Files that one directory may declare."""

Mode = Annotated[str, Meta(pattern="^0?[0-7]{3}$")]
"""Permissions in octal, as text: `"0644"`. There are no setuid, setgid and sticky bits to be had."""


class Content(Spec):
    """What a file holds: one of three, or nothing for an empty file."""

    content: str | None = None
    """The text itself."""
    content_base64: bytes | None = None
    """Bytes, in base64."""
    template: str | None = None
    """Text in which `{{ name.key }}` stands for a value from `values`, put in as it is, and `{{{{` for two braces."""

    rules = [
        Rule(
            "(has(self.content) ? 1 : 0) + (has(self.contentBase64) ? 1 : 0) + (has(self.template) ? 1 : 0) <= 1",
            message="give one of content, contentBase64 and template",
        )
    ]


class Entry(Content):
    """A file in a directory."""

    mode: Mode = "0644"


class FileSpec(Content):
    """A file, or a directory with files in it."""

    path: Annotated[
        str,
        Meta(pattern="^/", max_length=4096),
        Rule("self == oldSelf", message="the path cannot be changed: declare another File and delete this one"),
    ]
    """Absolute, and below a root that this host allows. No symbolic link may stand in the way."""
    kind: Annotated[
        Literal["file", "directory"],
        Rule("self == oldSelf", message="a file cannot become a directory: declare another File and delete this one"),
    ] = "file"
    mode: Mode | None = None
    """Default: "0644", and "0755" for a directory."""
    owner: int | str | None = None
    """A name or an id. Where it is not said it is not looked at, and stays as it is. Of a directory: of its files, too."""
    group: int | str | None = None
    """A name or an id, as for the owner."""
    values: Annotated[list[Source], ListMap("name"), Meta(max_length=32)] = []
    """The ConfigMaps and Secrets that templates take their values from."""
    files: Annotated[dict[str, Entry], Meta(max_length=FILES_MOST)] = {}
    """The files of a directory by their path below it: `conf.d/a.conf`. One that is no longer declared is removed."""
    purge: bool = False
    """Whether files in the directory that no File declares are removed. Bites: they are lost."""
    parents: bool = False
    """Whether missing directories above are made. They go again with the file, when nothing else is in them."""

    rules = [
        Rule(
            "self.kind == 'file' || !(has(self.content) || has(self.contentBase64) || has(self.template))",
            message="a directory has no content; its files do",
        ),
        Rule(
            "self.kind == 'directory' || (size(self.files) == 0 && !self.purge)",
            message="files and purge are for directories",
        ),
    ]


class EntryState(Spec):
    """A file of a directory as it is."""

    digest: str
    mode: str
    owner: int | None = None
    group: int | None = None


class FileState(Spec):
    """A file or directory as it is. Content shows as its digest: `sha256:…`; `hmac-sha256:…` where secrets are part of it."""

    path: str
    kind: str
    """`file`, `directory`, `link`, or `other`."""
    mode: str
    digest: str | None = None
    owner: int | None = None
    group: int | None = None
    files: dict[str, Annotated[EntryState, MapAtomic]] | None = None
    """Of a directory: the files that are declared or were, as far as they are there."""
    strays: list[str] | None = None
    """Of a directory that is purged: what nobody declared. Directories end with a slash."""
