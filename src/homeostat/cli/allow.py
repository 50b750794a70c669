"""What the loop may touch on this host: `--allow file:PATH`, `--allow process`, …, and the providers that come of it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from homeostat.guards.policy import Alert
    from homeostat.loop.compose import Composer
    from homeostat.loop.provider import Provider

    Kept = Provider[Any, Any] | Composer[Any]

F = TypeVar("F", bound=Callable[..., Any])

FORMS = {
    "file": "file:DIR keeps files below DIR",
    "process": "process, or process:DIR, runs commands, or those below DIR",
    "exec": "exec, or exec:PATH, runs programs, or those at or below PATH",
    "http": "http, or http:HOST, talks to REST APIs and pages of metrics, or those of HOST",
    "terraform": "terraform, or terraform:DIR, runs Terraform and OpenTofu modules, or those below DIR",
    "ansible": "ansible, or ansible:DIR, runs Ansible playbooks, or those below DIR",
    "puppet": "puppet, or puppet:DIR, runs Puppet manifests, or those below DIR",
    "gpu": "gpu shares out the GPUs of the agents that join",
    "git": "git, git:HOST or git:DIR, applies what Git repositories say, or those of HOST or below DIR",
    "webhooks": "webhooks:HOST:PORT hears there of pushes to Git repositories",
}
_OURS = (f"{Path(__file__).parents[1]}{os.sep}", str(importlib.__file__))
"""Code in which the mistake of a user's provider is not: our own, and what imports."""
_MODULES = {"gpu": "homeostat.gpu.controller", "git": "homeostat.sources.sync", "webhooks": "homeostat.sources.webhook"}


class Allowed(msgspec.Struct, frozen=True):
    """Which providers are on, and within what bounds. An empty tuple means: without bounds."""

    bounds: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    own: tuple[str, ...] = ()
    """Providers and composers of the user's: `lamps.py`, `shop.lamps` or `shop.lamps:Lamp`."""

    @classmethod
    def parse(cls, words: Iterable[str], own: Iterable[str] = ()) -> Allowed:
        """From the values of --allow and --provider. UsageError where one is not understood."""
        bounds: dict[str, list[str]] = {}
        free: set[str] = set()
        for text in words:
            name, colon, bound = text.partition(":")
            if name not in FORMS:
                raise click.UsageError(f"--allow {text}: what can be allowed is\n  " + "\n  ".join(FORMS.values()))
            if name == "file" and not bound:
                raise click.UsageError("--allow file: say where, such as --allow file:/etc/app")
            if name == "gpu" and colon:
                raise click.UsageError(f"--allow {text}: gpu has no bounds; who may use which GPUs is said by Tenants")
            if colon and not bound:
                raise click.UsageError(f"--allow {text}: nothing stands after the colon")
            if name in ("git", "webhooks"):
                _check_git(text, name, bound)
            elif bound and name != "http":
                bound = str(Path(bound).expanduser().absolute())
            known = bounds.setdefault(name, [])
            if bound:
                known.append(bound)
            else:
                free.add(name)
        return cls({name: () if name in free else tuple(found) for name, found in bounds.items()}, tuple(own))

    def __str__(self) -> str:
        """As a person would write it."""
        words = [f"{name}:{bound}" for name, found in self.bounds.items() for bound in found]
        return (
            ", ".join([*words, *(name for name, found in self.bounds.items() if not found), *self.own])
            or "nothing here"
        )

    def load(self) -> None:
        """Imports what `providers` and the engine need: on a thread, where an event loop has requests to serve meanwhile."""
        for name in ("kubernetes", "autoscaler", *self.bounds):
            importlib.import_module(_MODULES.get(name, f"homeostat.providers.{name}"))
        importlib.import_module("homeostat.guards.keeper")

    def providers(self, state: Path, kubeconfig: str | Path | None = None) -> list[Kept]:
        """The providers and composers, ready for an engine. `state` is a directory for what they must remember on this host.

        What reaches only Kubernetes APIs, by credentials that were declared for that, is always on. An autoscaler reads pages of
        metrics only from the hosts that are allowed for HTTP. Simulated nodes of a NodePool join by `kubeconfig`.
        """
        from homeostat.providers.autoscaler import Autoscaler
        from homeostat.providers.kubernetes import KubernetesObject

        pages = (self.bounds["http"] or None) if "http" in self.bounds else ()
        found: list[Kept] = [KubernetesObject(), Autoscaler(pages)]
        if "file" in self.bounds:
            from homeostat.providers.file import File

            found.append(File(allowed=self.bounds["file"]))
        if "process" in self.bounds:
            from homeostat.providers.process import Process

            found.append(Process(state / "processes", allowed=self.bounds["process"] or True))
        if "exec" in self.bounds:
            from homeostat.providers.exec import Exec

            found.append(Exec(allowed=self.bounds["exec"] or ("/",)))
        if "http" in self.bounds:
            from homeostat.providers.http import HttpResource

            found.append(HttpResource(self.bounds["http"] or None))
        found += self._tools(state) + self._git(state)
        if "gpu" in self.bounds:
            found += self._gpu(state, kubeconfig)
        return found + self._own(found)

    def _own(self, others: Iterable[Kept]) -> list[Kept]:
        """What is the user's, each kind once."""
        by, found = {one.info.name: "what is built in" for one in others}, []
        for text in self.own:
            for one in load_own(text):
                if (other := by.get(one.info.name)) is not None:
                    raise click.ClickException(
                        f"--provider {text}: {type(one).__name__} is for the kind {one.info.name}, which {other} keeps already; leave one out, or give it another kind or group"
                    )
                by[one.info.name] = f"--provider {text}"
                found.append(one)
        return found

    def _tools(self, state: Path) -> list[Kept]:
        """What has a dry run. With bounds, only code that lies there is run, and none that stands in a declaration."""
        kinds = {"terraform": "TerraformModule", "ansible": "AnsiblePlay", "puppet": "PuppetManifest"}
        return [
            getattr(importlib.import_module(f"homeostat.providers.{name}"), kind)(state / name, self.bounds[name] or None)
            for name, kind in kinds.items()
            if name in self.bounds
        ]

    def _git(self, state: Path) -> list[Kept]:
        """What Git repositories say is applied with all rights of the loop."""
        if "git" not in self.bounds:
            return []
        from homeostat.sources.sync import Sync

        host, _, port = next(iter(self.bounds.get("webhooks", ())), "").rpartition(":")
        return [Sync(state / "git", self.bounds["git"] or None, (host, int(port)) if port else None)]

    def _gpu(self, state: Path, kubeconfig: str | Path | None) -> list[Kept]:
        """A NodePool acts by what is allowed for that: commands by exec, webhooks by http, simulated nodes by process."""
        from homeostat.gpu.controller import Reach, providers
        from homeostat.providers.addresses import Hosts

        programs = (self.bounds["exec"] or ("/",)) if "exec" in self.bounds else None
        hosts = Hosts(self.bounds["http"] or None) if "http" in self.bounds else None
        folder = state / "pools" if "process" in self.bounds and not self.bounds["process"] else None
        return [*providers(Reach(programs, hosts, folder, None if kubeconfig is None else str(kubeconfig)))]


def _check_git(text: str, name: str, bound: str) -> None:
    if importlib.util.find_spec("pygit2") is None:
        raise click.UsageError(f"--allow {text}: pygit2 is not installed; it comes with `pip install homeostat[git]`")
    if name == "webhooks" and not (bound.rpartition(":")[0] and bound.rpartition(":")[2].isdigit()):
        raise click.UsageError(f"--allow {text}: say where, such as --allow webhooks:0.0.0.0:9292")


def loop_options(command: F) -> F:
    """Adds --allow, --provider, --enforce and --alert."""
    options = [
        click.option(
            "--allow",
            metavar="WHAT",
            multiple=True,
            help="What the loop may touch from this host; may be repeated. " + "; ".join(FORMS.values()) + ".",
        ),
        click.option(
            "--provider",
            "own",
            metavar="FILE|MODULE[:CLASS]",
            multiple=True,
            help="A provider or composer of your own; may be repeated. It runs with the rights of this process.",
        ),
        click.option(
            "--enforce", is_flag=True, help="Act on kinds that no policy speaks of, instead of only observing them."
        ),
        click.option(
            "--alert",
            "alerts",
            metavar="URL",
            multiple=True,
            callback=_receivers,
            help="A webhook that is told whenever something needs a person, of every fleet; may be repeated.",
        ),
    ]
    found: Any = command
    for option in reversed(options):
        found = option(found)
    return found  # type: ignore[no-any-return]


def _receivers(ctx: click.Context, param: click.Parameter, urls: tuple[str, ...]) -> tuple[Alert, ...]:
    if not urls:
        return ()
    import re

    from homeostat.guards.policy import WEBHOOK, Alert

    for url in urls:
        if not re.match(WEBHOOK, url):
            raise click.BadParameter(f"{url} is no URL such as https://alerts.example.com/hook")
    return tuple(Alert(webhook=url) for url in urls)


def load_own(text: str) -> list[Kept]:
    """The providers and composers that a file or module defines, or the one that is named. Says what is wrong where there is none."""
    from homeostat.loop.compose import Composer
    from homeostat.loop.provider import Provider

    place, _, wanted = text.partition(":")
    module = _module(place)
    classes = [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, (Provider, Composer)) and "info" in vars(thing)
        if (thing.__name__ == wanted if wanted else thing.__module__ == module.__name__)
    ]
    if not classes:
        raise click.ClickException(f"--provider {text}: it defines no {wanted or 'Provider or Composer with a group'}")
    try:
        return [kind() for kind in classes]
    except TypeError as error:
        raise click.ClickException(f"--provider {text}: it must be made without arguments: {error}") from None
    except Exception as error:
        raise _raised(text, error) from None


def _raised(text: str, error: Exception) -> click.ClickException:
    """Says what somebody's code raised, and where."""
    import traceback

    if isinstance(error, SyntaxError):
        return click.ClickException(f"--provider {text}: {error.filename}, line {error.lineno}: {error.msg}")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((*_OURS, "<frozen "))]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    said = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
    return click.ClickException(f"--provider {text}: {where}{said}{_meant(text) if not frames else ''}")


def _meant(text: str) -> str:
    """A file that was probably meant, where a module is not found."""
    file = f"{text.partition(':')[0]}.py"
    return f". Did you mean '{file}'?" if os.path.isfile(file) else ""


def _module(place: str) -> Any:
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = Path(place).expanduser()
        taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names  # whoever imports that means another
        name = f"{path.stem} of {path.absolute()}" if taken else path.stem
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # annotations are looked up there
        spec.loader.exec_module(module)
        return module
    except OSError as error:
        raise click.ClickException(f"--provider {place}: {error.strerror}") from None
    except Exception as error:
        raise _raised(place, error) from None
