"""Commands on `KIND NAME`: who is used to `KIND/NAME` may write that."""

from __future__ import annotations

import click


class KindName(click.Command):
    """One whose first two arguments are a kind and a name, or names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._apart(ctx, list(args)))

    def _apart(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            given, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError:
            return args  # it is said when they are parsed for good
        kind, name = (given.get(one.name or "") for one in self.params if isinstance(one, click.Argument))
        if not isinstance(kind, str) or isinstance(name, str) or (isinstance(name, tuple) and name):
            return args
        words = kind.split("/")
        if len(words) == 2 and all(words):
            at = len(args) - 1 - args[::-1].index(kind)
            args[at : at + 1] = words
        return args
