"""Terraform and OpenTofu modules, kept as declared.

    apiVersion: tools.homeostat.dev/v1
    kind: TerraformModule
    metadata: {name: network}
    spec:
      source: {path: /srv/infrastructure}
      directory: environments/prod
      variables: {region: eu-central-1}
      environmentFrom: [{name: cloud, secret: cloud-credentials}]

`terraform plan` is the observation and the difference; what is carried out is that saved plan and nothing else. Terraform refuses one
that is stale, and so do we where the code, the variables or the state have moved since. `spec` is what can be declared, `reading` the
way from Terraform's JSON to a plan (all of it pure), `provider` runs it.
"""

from homeostat.providers.terraform.provider import TerraformModule
from homeostat.providers.terraform.spec import TerraformSpec

__all__ = ["TerraformModule", "TerraformSpec"]
