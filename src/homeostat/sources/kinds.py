"""What can be declared of Git: where a repository is and which commit of it counts (`GitSource`), and what of it is applied (`Sync`)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta, field

from homeostat.model.kinds import Column, KindInfo, ListMap, Rule, Spec

GROUP, VERSION = "homeostat.dev", "v1alpha1"
API = f"{GROUP}/{VERSION}"

SYNC_LABEL = "homeostat.dev/sync"
"""Label of everything that a Sync applies: the uid of the Sync. With our fields in it, that is how a Sync knows what is its own."""
SYNC_NAME = "homeostat.dev/synced-by"
"""Annotation beside it, for people: namespace and name of the Sync."""

Name = Annotated[str, Meta(min_length=1, max_length=253)]
Glob = Annotated[str, Meta(min_length=1, max_length=1024)]
Path = Annotated[str, Meta(max_length=1024)]
Commit = Annotated[str, Meta(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")]
Interval = Annotated[
    timedelta,
    Rule("duration(self) >= duration('1s') && duration(self) <= duration('24h')", message="must be from 1s to 24h"),
]
TimeLimit = Annotated[
    timedelta,
    Rule("duration(self) >= duration('1s') && duration(self) <= duration('1h')", message="must be from 1s to 1h"),
]


class Revision(Spec):
    """Which commit counts: exactly one of these. Default: the branch that the repository has as its HEAD."""

    branch: Name | None = None
    tag: Name | None = None
    semver: Name | None = None
    """The newest tag in a range, such as `1.x`, `>=1.2.0 <2.0.0` or `~1.4`. Pre-releases only where the range has one."""
    commit: Commit | None = None

    rules = [
        Rule(
            "[has(self.branch), has(self.tag), has(self.semver), has(self.commit)].filter(x, x).size() <= 1",
            message="at most one of branch, tag, semver and commit",
        )
    ]


class Verify(Spec):
    """Only commits that are signed by one of the keys of a Secret count."""

    secret: Name
    """Keys that end in `.asc` are GPG public keys, those that end in `.pub` SSH public keys; others are left aside."""
    tag: bool = False
    """The annotated tag has to be signed, not the commit."""


class Webhook(Spec):
    """A push is taken note of at once. The address is `/hooks/git/NAMESPACE/NAME` where the loop listens for webhooks."""

    secret: Name
    """Its key `token` is the HMAC key (GitHub, generic), or the token (GitLab)."""


class WriteBack(Spec):
    """How each Sync of the source stands is posted as a status of its commit, whenever that changes. Off without this.

    It goes to hosts that the administrator allows (`--allow git:HOST`), and never holds a Sync up.
    """

    url: Annotated[
        str,
        Meta(max_length=2048),
        Rule(
            "self.matches('^https?://[^/@]+(/.*)?$')", message="must be https://…, and without a password: that stands in `secret`"
        ),
    ]
    """GitHub: https://api.github.com/repos/OWNER/REPO. GitLab: https://gitlab.com/api/v4/projects/ID. Generic: any address."""
    form: Literal["GitHub", "GitLab", "Generic"] = "Generic"
    secret: Name | None = None
    """Of the same namespace. Its key `token` is sent as bearer, with `hmac` the body is signed (`Homeostat-Signature`)."""
    link: Annotated[str, Meta(max_length=2048)] = ""
    """Where people are sent from the status; `{namespace}` and `{name}` are those of the Sync."""

    rules = [
        Rule("self.form == 'Generic' || has(self.secret)", message="GitHub and GitLab want a token: name a Secret in `secret`"),
        Rule(
            "!has(self.secret) || self.url.matches('^(https://|http://(127[.]0[.]0[.]1|localhost)[:/])')",
            message="with a secret the address must be https",
        ),
    ]


class Limits(Spec):
    """What a repository may be like; what is over is not fetched, or not rendered."""

    mebibytes: Annotated[int, Meta(ge=1, le=10_240)] = 256
    """Received in one fetch."""
    files: Annotated[int, Meta(ge=1, le=1_000_000)] = 50_000
    """In what one Sync reads."""
    time: TimeLimit = timedelta(seconds=60)
    """For one fetch."""


class GitSourceSpec(Spec):
    """A Git repository, and which commit of it counts."""

    url: Annotated[
        str,
        Meta(max_length=2048),
        Rule(
            "self.matches('^(https?://[^/@]+/.+|ssh://[^/]+/.+|[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:.+|file:///.+|/.+)$')",
            message="must be https://…, ssh://…, user@host:path, or a path on the host of the loop; secrets stand in `secret`",
        ),
    ]
    revision: Revision = field(default_factory=Revision)
    interval: Interval = timedelta(minutes=1)
    """From one look to the next, give or take a tenth."""
    secret: Name | None = None
    """Of the same namespace. HTTPS: `username` and `password`, or `token`. SSH: `identity` and `known_hosts`."""
    include: Annotated[list[Glob], Meta(max_length=64)] = []
    """Only files that match one of these (`apps/**`, `*.yaml`) are seen. Default: all."""
    exclude: Annotated[list[Glob], Meta(max_length=64)] = []
    depth: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """How many commits of history are fetched; 0: all. Not of local paths. What is not fetched cannot be gone back to."""
    verify: Verify | None = None
    webhook: Webhook | None = None
    write_back: WriteBack | None = None
    suspend: bool = False
    """Nothing new is fetched."""
    limits: Limits = field(default_factory=Limits)

    @property
    def seen(self) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """What of it a Sync may see: `include`, `exclude`, and how many files."""
        return tuple(self.include), tuple(self.exclude), self.limits.files


class SourceRef(Spec):
    """A GitSource of the same namespace."""

    name: Name


class DependsOn(Spec):
    """Another Sync of the same namespace."""

    name: Name


class Hold(Spec):
    """Stays at an earlier commit, until there is a newer one than `not_past`; or until `hold` is taken away."""

    commit: Commit
    """What is applied."""
    not_past: Commit
    """What the source had when this was decided. While that is what it has, it is not applied."""
    reason: Annotated[str, Meta(max_length=1024)] = ""


class Suspend(Spec):
    """Nothing new is applied; what is applied is kept as it is."""

    reason: Annotated[str, Meta(min_length=1, max_length=1024)]


class Decryption(Spec):
    """Files that SOPS encrypted for age keys are opened."""

    secret: Name
    """Of the same namespace. Its keys that end in `.agekey` hold age identities."""


class SyncSpec(Spec):
    """What of a repository is applied, and how."""

    source: SourceRef
    path: Path = ""
    """The directory in the repository; default: all of it."""
    recurse: bool = True
    render: Literal["Auto", "Plain", "Kustomize", "Jinja2"] = "Auto"
    """Auto: Kustomize where the directory has a kustomization.yaml, else Plain, with `*.j2` files as Jinja2 templates beside it."""
    environment: Annotated[str, Meta(max_length=63)] = ""
    """The name of the environment; `${ENVIRONMENT}` in files, and what `homeostat promote` and drift between environments go by."""
    variables: Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=256)] = {}
    """`${NAME}` in files becomes this; `${NAME:-default}` where it is not set; `$${NAME}` stays `${NAME}`."""
    target_namespace: Annotated[str, Meta(max_length=63)] = ""
    """Every namespaced object goes there, whatever it says. Default: what it says, else the namespace of the Sync."""
    prune: bool = True
    """What this Sync applied, and the commit has no more, is deleted."""
    on_delete: Literal["Leave", "Prune"] = "Leave"
    """What becomes of the objects when the Sync is deleted."""
    depends_on: Annotated[list[DependsOn], ListMap("name"), Meta(max_length=64)] = []
    """Waits until these are Ready, at the same commit where they have the same source."""
    retry: Annotated[
        timedelta,
        Rule("duration(self) >= duration('1s') && duration(self) <= duration('24h')", message="must be from 1s to 24h"),
    ] = timedelta(minutes=1)
    """After so long a commit that was refused is tried again. What fails while it is applied waits as its GuardPolicy says."""
    return_on_failure: bool = False
    """When a commit fails its canary or health, go back to the last that was good, and hold there."""
    decryption: Decryption | None = None
    suspend: Suspend | None = None
    hold: Hold | None = None


GIT_SOURCE = KindInfo(
    GROUP,
    VERSION,
    "GitSource",
    GitSourceSpec,
    categories=("homeostat-sources",),
    columns=(
        Column("URL", ".spec.url"),
        Column("Commit", ".status.commit"),
        Column("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ),
    host=True,
)
