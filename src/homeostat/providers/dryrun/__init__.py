"""What Terraform, Ansible and Puppet have in common: a dry run that says what would be done, and a run that does it.

The dry run is the observation and the difference in one: what the tool would do is what is not as declared. So

- `plan` is a dry run as data: its steps, what they count for, what moved by itself, and how all that is shown and compared;
- `source` is where the code of a module comes from;
- `place` is its directory on this host: one run at a time, the logs of the last runs, what is remembered;
- `running` runs a tool, so that it survives us and is found again;
- `spec` has the fields that all three kinds share;
- `provider` puts them under the loop.

A tool adds how it is called and how its output is read: see `homeostat.providers.terraform`, `.ansible` and `.puppet`.
"""
