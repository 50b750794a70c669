"""A thing behind a REST API: GET to observe it; PUT, PATCH, POST and DELETE to act.

    apiVersion: http.homeostat.dev/v1
    kind: HttpResource
    metadata: {name: orders, namespace: shop}
    spec:
      url: https://queues.example.com/v1/queues/orders
      body: {retention: 7d, maxLength: 100000}     # our fields; what else the server has there is left alone
      update: {method: PATCH}
      auth: {secret: queues-token}                 # a Secret of the same namespace; its key `token` as bearer

`spec` is what can be declared, `exchange` one request with all its limits, `provider` puts the two together.
"""

from homeostat.providers.http.provider import HttpResource
from homeostat.providers.http.spec import HttpResourceSpec, HttpResourceState

__all__ = ["HttpResource", "HttpResourceSpec", "HttpResourceState"]
