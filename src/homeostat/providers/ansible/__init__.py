"""Ansible playbooks, kept as declared.

    apiVersion: tools.homeostat.dev/v1
    kind: AnsiblePlay
    metadata: {name: web}
    spec:
      source: {path: /srv/playbooks}
      playbook: web.yml
      inventory: hosts.ini
      variablesFrom: [{name: secrets, secret: web-secrets}]

`--check --diff` is the observation and the difference; what is carried out is the same playbook on the same variables, after a
check that is less than a minute old. `spec` is what can be declared, `callback` a plug-in that has Ansible tell what it does as JSON, `reading` the way
from there to a plan (all of it pure), `provider` runs it.
"""

from homeostat.providers.ansible.provider import AnsiblePlay
from homeostat.providers.ansible.spec import AnsibleSpec

__all__ = ["AnsiblePlay", "AnsibleSpec"]
