"""A group whose commands are imported when they are asked for: libp2p and torch take seconds, and most do without."""

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class CommandGroup(click.Group):
    """Commands by name, and the module of each in one package."""

    def __init__(self, *args: Any, package: str, modules: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._package = package
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were given: what one needs first stands first."""
        del ctx
        return list(self._modules)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name where there is no such command."""
        close = difflib.get_close_matches(args[0], self._modules, 1)
        if close and args[0] not in self._modules:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None where there is none."""
        del ctx
        if cmd_name not in self._modules:
            return None
        found = vars(import_module(f"{self._package}.{self._modules[cmd_name]}")).values()
        return next(each for each in found if isinstance(each, click.Command) and each.name == cmd_name)
