"""What can be declared of a Terraform module."""

from __future__ import annotations

from typing import Literal

from homeostat.providers.dryrun.spec import ModuleSpec


class TerraformSpec(ModuleSpec):
    """A Terraform or OpenTofu module. Its state is where its backend says; without one, in its directory on this host."""

    tool: Literal["", "terraform", "tofu"] = ""
    """Which program; empty: terraform where it is installed, else tofu."""
    deletion: Literal["Keep", "Destroy"] = "Keep"
    """What becomes of the things when the declaration is deleted. To destroy them is a plan of its own, and judged as one."""
