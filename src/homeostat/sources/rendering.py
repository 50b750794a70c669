"""From a commit to the objects that it declares: the same tree and options always give the same, so what was parsed once is kept.

A thousand Syncs of one repository share what was parsed of each file, by its content; a commit that changes one file of ten thousand
parses one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from homeostat.sources.files import File, RenderError, Trees, find_tree, list_files, read_file
from homeostat.sources.kustomize import build, is_kustomization
from homeostat.sources.manifests import SUFFIXES, Manifest, line_of, parse
from homeostat.sources.sops import Keys
from homeostat.sources.templates import SUFFIX, render_templates
from homeostat.sources.variables import substitute

KEPT_BYTES = 32 * 1024 * 1024
"""Of files whose objects are kept parsed."""
ENVIRONMENT = "ENVIRONMENT"
SEALED = "ENC[AES256_GCM,"
"""Without this a file is not encrypted."""


class Options(msgspec.Struct, frozen=True):
    """How a directory is rendered; see `SyncSpec` and `GitSourceSpec`."""

    path: str = ""
    recurse: bool = True
    render: str = "Auto"
    environment: str = ""
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    most_files: int = 50_000
    keys: Keys | None = None

    @property
    def values(self) -> dict[str, str]:
        """What is substituted."""
        return {ENVIRONMENT: self.environment, **self.variables} if self.environment else dict(self.variables)


class Rendered(msgspec.Struct):
    """What a commit comes to. `tree` names what it was made of."""

    tree: str
    manifests: list[Manifest]
    texts: dict[str, str] = msgspec.field(default_factory=dict)
    """Of files that are not as they stand in the repository: what tools made of them, for finding lines."""


class Parsed:
    """The objects of files by their content. What is handed out is shared: nobody changes it."""

    def __init__(self, room: int = KEPT_BYTES) -> None:
        self._room = room
        self._size = 0
        self._known: OrderedDict[tuple[str, str, str], tuple[int, list[Manifest]]] = OrderedDict()
        self._lock = threading.Lock()
        self.parsed = 0
        """How many files were parsed, for whoever counts."""

    def objects(
        self, trees: Trees, file: File, values: Mapping[str, str], mark: str, keys: Keys | None = None
    ) -> list[Manifest]:
        """The objects of a file, with the variables filled in. `mark` names these values.

        What was encrypted is found again only by who has the same keys, and has no variables: they would break its MAC.
        """
        plain, filled = (file.blob, file.path, ""), (file.blob, file.path, mark)
        opened = (file.blob, file.path, keys.digest if keys is not None else "")
        with self._lock:
            for key in (plain, filled, opened):
                if (found := self._known.get(key)) is not None:
                    self._known.move_to_end(key)
                    return found[1]
        text = _text(trees, file)
        made = parse(text, file.path, keys) if SEALED in text and "sops" in text else []
        sealed = any(one.sealed for one in made)
        if not sealed:
            made = parse(substitute(text, values, file.path), file.path)
        with self._lock:
            self.parsed += 1
            key = opened if sealed else plain if "${" not in text else filled
            if key not in self._known:
                self._size += len(text)
            self._known[key] = len(text), made
            while self._size > self._room and len(self._known) > 1:
                self._size -= self._known.popitem(last=False)[1][0]
        return made


def _text(trees: Trees, file: File) -> str:
    try:
        return read_file(trees, file).decode()
    except UnicodeDecodeError as error:
        raise RenderError(f"it is not UTF-8, at byte {error.start}", file.path) from None


def render(trees: Trees, root: str, options: Options, parsed: Parsed) -> Rendered:
    """All objects of a directory, in the order of its files. RenderError where any of it is wrong: it is all or nothing."""
    below = "/".join(part for part in options.path.split("/") if part not in ("", "."))
    tree = find_tree(trees, root, below)
    here = list_files(
        trees,
        tree,
        below,
        recurse=options.recurse,
        include=options.include,
        exclude=options.exclude,
        most=options.most_files,
    )
    how = options.render
    if how == "Auto":
        how = "Kustomize" if any(is_kustomization(file.path, below) for file in here) else "Plain"
    if how == "Kustomize":
        return _kustomized(trees, root, tree, below, options)
    found = Rendered(tree, [])
    templates = [file for file in here if file.path.endswith(SUFFIX)]
    if templates:
        _templated(trees, templates, options, found)
    values = options.values
    mark = repr(sorted(values.items()))
    for file in here:
        if file.path.endswith(SUFFIXES) and how != "Jinja2":
            found.manifests += parsed.objects(trees, file, values, mark, options.keys)
    return found


def _kustomized(trees: Trees, root: str, tree: str, below: str, options: Options) -> Rendered:
    whole = list_files(trees, root, include=options.include, exclude=options.exclude, most=options.most_files)
    text = substitute(build(trees, whole, below), options.values, below)
    name = f"{below}/kustomization.yaml".lstrip("/")
    return Rendered(tree, [Manifest(one.obj, name, 0) for one in parse(text, name)])


def _templated(trees: Trees, templates: Sequence[File], options: Options, found: Rendered) -> None:
    texts = {file.path: _text(trees, file) for file in templates}
    wanted = [path for path in texts if path.removesuffix(SUFFIX).endswith(SUFFIXES)]
    if not wanted:
        return
    for path, text in render_templates(texts, wanted, options.values, options.environment).items():
        found.texts[path] = text
        found.manifests += parse(text, path)


def locate(trees: Trees, root: str, found: Rendered, manifest: Manifest, field: str) -> int:
    """The line of a field of a manifest, in its file (or in what a template made of it); its first where that is not known."""
    text = found.texts.get(manifest.file)
    if text is None and manifest.line:
        directory, _, name = manifest.file.rpartition("/")
        entry = next(one for one in trees.entries(find_tree(trees, root, directory)) if one.name == name)
        text = trees.read(entry.id).decode()
    return (line_of(text, manifest.line, field) if text else 0) or manifest.line
