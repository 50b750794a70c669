'''A control plane in a test, in milliseconds: real API server, real TLS, real kubeconfig, no cluster.

With pytest the fixtures are there as soon as homeostat is installed: `homeostat` is a control plane for one test,
`homeostat_session` one for the whole session. Testing a kopf operator takes nothing else:

    from kopf.testing import KopfRunner

    def test_it_greets(homeostat):
        homeostat.apply(Path("greetings-crd.yaml").read_text())
        homeostat.apply("{apiVersion: example.com/v1, kind: Greeting, metadata: {name: hi, namespace: default}}")
        with homeostat.as_default(), KopfRunner(["run", "--all-namespaces", "--standalone", "greeter.py"]):
            homeostat.wait_for("example.com/v1", "Greeting", "hi", lambda o: o.get("status", {}).get("said") == "hi")

`homeostat.loop(Lamp())` runs a provider or composer of yours on it, by the real loop behind the real guards; docs/first-provider.md shows it.

Any client takes the kubeconfig: `kubectl --kubeconfig`, `kubernetes.config.load_kube_config(str(homeostat.kubeconfig))`,
`lightkube.KubeConfig.from_file(homeostat.kubeconfig)`. In an async test `async with homeostat.client() as client` gives
ours. Without pytest:

    with control_plane() as plane:
        subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig, "get", "namespaces"])
'''

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homeostat.testing.plane import TestPlane, control_plane

__all__ = ["TestPlane", "control_plane"]


def __getattr__(name: str) -> Any:
    """Imports when first asked: pytest loads this package in every run, whether or not a test needs it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from homeostat.testing import plane

    return getattr(plane, name)
