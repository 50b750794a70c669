"""From a commit to its objects: directories, variables, kustomizations and templates; and what is wrong with them, with its place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.sources.repo import Repo, config_map

from homeostat.sources.files import RenderError, matches
from homeostat.sources.kustomize import reason_of
from homeostat.sources.rendering import Options, Parsed, Rendered, locate, render
from homeostat.sources.repository import NOBODY, Allowance, Repository

needs_kustomize = pytest.mark.skipif(not (shutil.which("kustomize") or shutil.which("kubectl")), reason="no kustomize")


class Copy:
    """A repository, fetched."""

    def __init__(self, repo: Repo, directory: Path) -> None:
        self.repo = repo
        self.trees = Repository(directory, str(repo.path))
        self.parsed = Parsed()

    def render(self, **options: object) -> Rendered:
        self.trees.fetch("refs/heads/main", NOBODY, Allowance())
        commit = self.trees.commit(self.repo.git("rev-parse", "HEAD"))
        return render(self.trees, commit.tree, Options(**options), self.parsed)  # type: ignore[arg-type]

    def names(self, **options: object) -> list[str]:
        return [one.obj["metadata"]["name"] for one in self.render(**options).manifests]

    def refused(self, **options: object) -> RenderError:
        with pytest.raises(RenderError) as caught:
            self.render(**options)
        return caught.value


@pytest.fixture
def copy(repo: Repo, tmp_path: Path) -> Copy:
    return Copy(repo, tmp_path / "copies")


def test_every_yaml_and_json_file_below_a_path_counts_and_nothing_else(copy: Copy) -> None:
    copy.repo.commit(
        {
            "apps/a.yaml": f"{config_map('a')}---\n{config_map('b')}",
            "apps/deep/c.json": '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}',
            "apps/README.md": "not a manifest",
            "other/d.yml": config_map("d"),
        }
    )
    assert copy.names(path="apps") == ["a", "b", "c"]
    assert copy.names(path="apps", recurse=False) == ["a", "b"]
    assert copy.names() == ["a", "b", "c", "d"]
    assert copy.names(exclude=("apps/**",)) == ["d"]
    assert copy.names(include=("*.json",)) == ["c"]


def test_lists_are_taken_apart(copy: Copy) -> None:
    items = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("a", "b")]
    copy.repo.commit({"l.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": items})})
    assert copy.names() == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [\n", 2, "did not find expected node content"),
        ("a: 1\na: 2\n", 2, 'key "a" is already set'),
        ("- 1\n", 1, "an object is expected"),
        ("x: &a 1\n", 1, "anchors"),
        (f"{config_map('a')}---\nkind: ConfigMap\n", 7, "apiVersion is missing"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", 1, "metadata.name is missing"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: no}\n", 1, "metadata.labels is a map"),
        (config_map("a", "${NOT_SET}"), 6, "${NOT_SET} is not set"),
        (config_map("a", "${not a name}"), 6, "is no variable"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(copy: Copy, text: str, line: int, words: str) -> None:
    copy.repo.commit({"apps/good.yaml": config_map("good"), "apps/wrong.yaml": text})
    error = copy.refused(path="apps")
    assert (error.file, error.line) == ("apps/wrong.yaml", line)
    assert words in str(error)


def test_variables_are_filled_in_per_environment(copy: Copy) -> None:
    copy.repo.commit({"a.yaml": config_map("a-${ENVIRONMENT}", "${SIZE:-small} $${SIZE}")})
    (plain,) = copy.render(environment="dev").manifests
    assert (plain.obj["metadata"]["name"], plain.obj["data"]["value"]) == ("a-dev", "small ${SIZE}")
    (large,) = copy.render(environment="prod", variables={"SIZE": "large"}).manifests
    assert (large.obj["metadata"]["name"], large.obj["data"]["value"]) == ("a-prod", "large ${SIZE}")


def test_a_variable_cannot_bring_lines_in(copy: Copy) -> None:
    copy.repo.commit({"a.yaml": config_map("a", "${X}")})
    assert "several lines" in str(copy.refused(variables={"X": '"\nmore: 1'}))


def test_a_commit_that_changes_one_file_parses_one(copy: Copy) -> None:
    copy.repo.commit({f"{i}.yaml": config_map(f"c{i}") for i in range(20)})
    copy.render()
    assert copy.parsed.parsed == 20
    copy.repo.commit({"7.yaml": config_map("c7", "2")})
    copy.render()
    copy.render(recurse=False)
    assert copy.parsed.parsed == 21


def test_what_is_kept_parsed_has_an_end(copy: Copy) -> None:
    copy.parsed = Parsed(room=3000)
    copy.repo.commit({f"{i}.yaml": config_map(f"c{i}") for i in range(100)})
    assert len(copy.names()) == 100
    assert sum(size for size, _ in copy.parsed._known.values()) <= 3000


def test_too_many_files_are_refused(copy: Copy) -> None:
    copy.repo.commit({f"{i}.yaml": config_map(f"c{i}") for i in range(5)})
    assert "more than 4 files" in str(copy.refused(most_files=4))


def test_a_path_that_is_not_there_is_refused(copy: Copy) -> None:
    copy.repo.commit({"a.yaml": config_map("a")})
    assert "no directory 'nowhere'" in str(copy.refused(path="nowhere"))


def test_links_lead_nowhere(copy: Copy) -> None:
    copy.repo.commit({"apps/a.yaml": config_map("a")})
    (copy.repo.path / "apps" / "link.yaml").symlink_to("/etc/passwd")
    (copy.repo.path / "apps" / "up").symlink_to("/etc")
    copy.repo.commit({})
    assert copy.names(path="apps") == ["a"]


def test_the_line_of_a_field_is_found(copy: Copy) -> None:
    text = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n  - port: 1\n    name: x\n  - name: y\n    port: 2\n"
    copy.repo.commit({"a.yaml": f"{config_map('first')}---\n{text}"})
    found = copy.render()
    root = copy.trees.commit(copy.repo.git("rev-parse", "HEAD")).tree
    service = found.manifests[1]
    lines = {
        "spec": 12,
        "spec.ports[1].port": 17,
        'spec.ports[name="y",protocol="TCP"].port': 17,
        "spec.selector": 12,
        "metadata.name": 11,
    }
    assert {field: locate(copy.trees, root, found, service, field) for field in lines} == lines


@needs_kustomize
def test_a_kustomization_is_built_with_its_base(copy: Copy) -> None:
    copy.repo.commit(
        {
            "base/kustomization.yaml": "resources: [a.yaml]\n",
            "base/a.yaml": config_map("a"),
            "prod/kustomization.yaml": "resources: [../base]\nnamePrefix: prod-\n",
        }
    )
    assert copy.names(path="prod") == ["prod-a"]


@needs_kustomize
def test_a_kustomization_that_cannot_be_built_is_refused_with_its_words(copy: Copy) -> None:
    copy.repo.commit({"prod/kustomization.yaml": "resources: [missing.yaml]\n"})
    error = copy.refused(path="prod")
    assert error.file == "prod/kustomization.yaml"
    assert "missing.yaml" in str(error)
    assert "/tmp" not in str(error)


@needs_kustomize
@pytest.mark.parametrize("base", ["https://127.0.0.1:1/base.yaml", "github.com/example/base", "/etc/hostname"])
def test_a_kustomization_reaches_nothing_outside_of_its_commit(copy: Copy, base: str) -> None:
    copy.repo.commit({"kustomization.yaml": f"resources: ['{base}']\n"})
    copy.refused()


def test_templates_see_variables_and_each_other_and_nothing_else(copy: Copy) -> None:
    loop = (
        "{% from 'lib.j2' import name %}{% for i in range(3) %}---\n"
        + config_map("{{ name(i) }}", "{{ vars.SIZE }}")
        + "{% endfor %}"
    )
    copy.repo.commit(
        {
            "apps.yaml.j2": loop,
            "lib.j2": "{% macro name(i) %}{{ env }}-{{ i }}{% endmacro %}",
            "plain.yaml": config_map("plain"),
        }
    )
    assert copy.names(environment="dev", variables={"SIZE": "1"}) == ["dev-0", "dev-1", "dev-2", "plain"]
    assert copy.names(environment="dev", variables={"SIZE": "1"}, render="Jinja2") == ["dev-0", "dev-1", "dev-2"]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ vars.MISSING }}", "MISSING"),
        ("\n{% for %}", "x.yaml.j2:2"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% include '/etc/passwd' %}", "/etc/passwd"),
        ("{{ 'x' * 10**10 }}", "MiB"),
    ],
)
def test_a_template_that_goes_wrong_is_refused_with_its_words(copy: Copy, template: str, words: str) -> None:
    copy.repo.commit({"x.yaml.j2": template})
    assert words in str(copy.refused())


def test_a_template_that_never_ends_is_ended(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homeostat.sources.templates.SECONDS", 1)
    loops = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
    copy.repo.commit({"x.yaml.j2": loops})
    assert "more than 1 s" in str(copy.refused())


def test_patterns() -> None:
    assert matches("apps/a.yaml", "*.yaml")
    assert matches("apps/deep/a.yaml", "apps/**")
    assert matches("apps/a.yaml", "apps/*.yaml")
    assert not matches("apps/deep/a.yaml", "apps/*.yaml")
    assert matches("apps/deep/a.yaml", "apps/**/*.yaml")
    assert not matches("other/a.yaml", "apps/**")


@pytest.mark.parametrize(
    "said",
    [
        "Error: accumulating resources: no such file\n",
        "# Warning: 'commonLabels' is deprecated.\nerror: accumulating resources: no such file",
        "# Warning: x\nE1115 20:41:14.870108   22284 run.go:72] \"command failed\" err=\"accumulating resources: no such file\"\n",
    ],
)
def test_what_kustomize_says_is_told_without_warnings_times_and_processes(said: str) -> None:
    assert reason_of(said) == "accumulating resources: no such file"
