"""An object on another Kubernetes API, or on this one, by server-side apply: we own the fields that are declared, and no others.

    apiVersion: kubernetes.homeostat.dev/v1
    kind: KubernetesObject
    metadata: {name: web, namespace: shop}
    spec:
      kubeconfigSecret: {name: berlin}      # a Secret of the same namespace; without it: this API
      object:
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web, namespace: shop}
        spec: {replicas: 3}                 # the rest is somebody else's

`spec` is what can be declared, `ownership` which fields of a live object are meant by it, `clusters` the way to other APIs, `hints`
what makes the loop look at once, and `provider` puts them together.
"""

from homeostat.providers.kubernetes.provider import KubernetesObject
from homeostat.providers.kubernetes.spec import KubernetesObjectSpec, KubernetesObjectState

__all__ = ["KubernetesObject", "KubernetesObjectSpec", "KubernetesObjectState"]
