"""What people are told: read from the API, put in words and figures; and plans of writes, which are shown before a person says yes.

The CLI prints it, the dashboard shows it. Nothing here acts by itself: `planning.carry_out` and `returning.carry_back` write a plan, as
whoever the client is.
"""
