"""`homeostat bridge kubernetes`: keeps the GPUs of a Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.bridge.running import How, bridge_options, keep
from homeostat.cli.connection import REQUEST_SECONDS

if TYPE_CHECKING:
    from homeostat.client import Client

DEFAULT_STATE = "~/.homeostat/bridges/NAME"


@click.command()
@click.option("--cluster-kubeconfig", metavar="PATH", default="", help="The cluster. Default: the server that workloads are read from.")
@click.option("--cluster-context", metavar="NAME", default="", help="The context in it, where it is not the current.")
@click.option("--pod-namespace", metavar="NAME", default="default", show_default=True, help="Where Pods are made, in the cluster.")
@click.option("--image", default="", help="What workloads run in that name none in spec.image.")
@click.option(
    "--pod-template",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A Pod that others are made after: volumes, tolerations, a service account. Its first container is that of the replica.",
)
@click.option("--gpu-resource", default="nvidia.com/gpu", show_default=True, help="What the device plugin calls its GPUs.")
@click.option("--nodes", "selector", metavar="SELECTOR", default="", help="Keep only nodes with these labels. Default: all that have GPUs.")
@click.option("--state", metavar="DIR", default=DEFAULT_STATE, show_default=True, help="What must outlast the bridge.")
@click.option("--print-cluster-access", is_flag=True, help="Print the roles that the bridge needs in the cluster, and end.")
@bridge_options("kubernetes")
def command(
    how: How,
    cluster_kubeconfig: str,
    cluster_context: str,
    pod_namespace: str,
    image: str,
    pod_template: Path | None,
    gpu_resource: str,
    selector: str,
    state: str,
    print_cluster_access: bool,
) -> None:
    """Keep the GPUs of a Kubernetes cluster: declare its nodes, run the workloads that are placed there as Pods, and report.

    Pods outlive the bridge; the next one with the same --state takes them up again. Whoever may place workloads in the API has Pods
    made in the cluster, after the --pod-template.

    \b
    Examples:
      homeostat bridge kubernetes --cluster-kubeconfig cluster.yaml --pod-namespace gpu-jobs --image pytorch/pytorch
      homeostat bridge kubernetes --cluster-kubeconfig cluster.yaml --print-access | kubectl apply -f -
      homeostat bridge kubernetes --pod-namespace gpu-jobs --print-cluster-access

    Exits with 0 when it is told to stop, 1 when it cannot be run.
    """
    import yaml

    from homeostat.client import ConfigError
    from homeostat.gpu.bridge.kubernetes import Kubernetes, Options
    from homeostat.gpu.bridge.kubernetes.access import manifests
    from homeostat.model.names import dns_label_problems

    if problems := dns_label_problems(pod_namespace):
        raise click.BadParameter(f"{pod_namespace}: {'; '.join(problems)}", param_hint="--pod-namespace")
    if print_cluster_access:
        click.echo(yaml.safe_dump_all(manifests(pod_namespace), sort_keys=False).rstrip())
        return
    options = Options(pod_namespace, image, gpu_resource, selector, _template(pod_template), how.called())
    place = Path(state.replace("NAME", how.name) if state == DEFAULT_STATE else state).expanduser().absolute()
    try:
        client = _client(how, cluster_kubeconfig, cluster_context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    keep(how, Kubernetes(client, options), place)


def _client(how: How, kubeconfig: str, context: str) -> Client:
    from homeostat.client import Client

    limits: dict[str, Any] = {"timeout": REQUEST_SECONDS, "attempts": 2}
    if kubeconfig:
        return Client.from_kubeconfig(str(Path(kubeconfig).expanduser()), context or None, **limits)
    if how.join:
        raise click.UsageError("--join says where workloads are: say which cluster is kept with --cluster-kubeconfig")
    return Client.from_kubeconfig(how.server.place(), context or how.server.context, **limits)


def _template(path: Path | None) -> dict[str, Any]:
    import yaml

    if path is None:
        return {}
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise click.ClickException(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    spec = found.get("spec") if isinstance(found, dict) else None
    containers = spec.get("containers", []) if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not all(isinstance(one, dict) for one in containers):
        raise click.ClickException(f"{path} is no Pod: it needs a spec, and in it containers as a list")
    return found  # type: ignore[no-any-return]
