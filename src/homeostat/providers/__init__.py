"""Providers: one file or folder for each kind of real thing that can be declared.

A provider says how one kind is observed and changed, and leaves everything else to the loop: when to look, what differs, whether
to act. So all of them hold to the same few rules:

- a read that fails raises, and what is there is unknown; absent is only what was looked for and is not there;
- what is done is done again without harm, for it may be tried again after a crash;
- everything has a deadline, and nothing holds up the event loop;
- what is not allowed is refused with the reason, and secrets are in no status, event or log.

Those that touch the host (files, processes, commands) do nothing until their constructor is told what they may touch. Those that
reach over the network keep away from addresses that only the machine itself should talk to; see `addresses`.
"""
