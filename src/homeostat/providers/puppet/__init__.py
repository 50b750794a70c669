"""Puppet manifests, kept as declared on this host.

    apiVersion: tools.homeostat.dev/v1
    kind: PuppetManifest
    metadata: {name: base}
    spec:
      source: {path: /srv/puppet}
      manifest: manifests/site.pp
      variables: {role: web}

`puppet apply --noop` and its report are the observation and the difference; what is carried out is the same without `--noop`, after a
look that is less than a minute old. What Puppet had put right before and finds otherwise is a corrective change: drift, apart from intent.
`spec` is what can be declared, `reading` the way from a report to a plan (all of it pure), `facts` has what makes `puppet apply`
remember what it did, as the agent does, and `provider` runs it.
"""

from homeostat.providers.puppet.provider import PuppetManifest
from homeostat.providers.puppet.spec import PuppetSpec

__all__ = ["PuppetManifest", "PuppetSpec"]
