"""What can be declared of an Ansible play."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from homeostat.providers.dryrun.spec import ModuleSpec, Within

Words = Annotated[list[Annotated[str, Meta(pattern="^[^-,\\s][^,\\s]*$", max_length=253)]], Meta(max_length=1000)]


class AnsibleSpec(ModuleSpec):
    """A playbook and the hosts that it is for. `directory` is where it runs, and where its `ansible.cfg` is found."""

    playbook: Within = "site.yml"
    """In `directory`."""
    inventory: Within = ""
    """A file or directory in `directory`. Empty: the `hosts`."""
    hosts: Words = []
    """Hosts by their names, where there is no inventory. Without both: this one, without a connection."""
    limit: Words = []
    """Only these hosts or groups of the inventory."""
    tags: Words = []
    """Only tasks with these tags."""
