"""What can be declared of a Puppet manifest."""

from __future__ import annotations

from homeostat.providers.dryrun.spec import ModuleSpec, Within


class PuppetSpec(ModuleSpec):
    """A manifest for this host. Variables are facts: `$facts['role']`. Of the source, `modules` and `hiera.yaml` are used if they are there."""

    manifest: Within = "site.pp"
    """A file, or a directory of files, in `directory`."""
