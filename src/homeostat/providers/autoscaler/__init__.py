"""How many replicas something has, by what is measured: the `scale` subresource of anything, driven through the same gate as all else.

    apiVersion: homeostat.dev/v1alpha1
    kind: Autoscaler
    metadata: {name: mailer, namespace: shop}
    spec:
      target: {apiVersion: processes.homeostat.dev/v1, kind: Process, name: mailer}
      maxReplicas: 10
      metrics:
      - name: queue
        prometheus: {url: "http://metrics.example.com:9100/metrics", series: 'queue_length{queue="mail"}'}
        law: {proportional: {target: 100, total: true}}

`spec` is what can be declared and shown, `metrics` where the numbers come from, `deciding` the pure way from them to replicas, and
`provider` puts them together.
"""

from homeostat.providers.autoscaler.provider import Autoscaler
from homeostat.providers.autoscaler.spec import AutoscalerSpec, AutoscalerState

__all__ = ["Autoscaler", "AutoscalerSpec", "AutoscalerState"]
