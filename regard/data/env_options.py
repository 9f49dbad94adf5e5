"""Options of training in an environment instead of from files."""

from __future__ import annotations

from dataclasses import dataclass

from regard.validate import check_fields


@dataclass(frozen=True)
class EnvOptions:
    """The environment to train in."""

    env: str | None = None  # train in this gymnasium environment instead of from files: CartPole-v1 ...
    hide: tuple[int, ...] = ()  # with --env: indices of observation entries, from 0, that are hidden from the policy
    real_steps: int = 3000  # with --env: number of environment steps in all rounds together
    history: int | None = None  # with --env: latest observations in the policy's input; default: 1, with --hide 4

    def __post_init__(self) -> None:
        defaults = {name: field.default for name, field in self.__dataclass_fields__.items()}
        allowed = {name: self.env is not None or getattr(self, name) == defaults[name] for name in defaults}
        check_fields(self, **{name: (fine, "left out without --env") for name, fine in allowed.items()})
        check_fields(
            self,
            real_steps=(100 <= self.real_steps <= 10**8, "at least 100, and at most 100,000,000"),
            history=(self.history is None or 1 <= self.history <= 64, "1 to 64"),
        )

    @property
    def history_length(self) -> int:
        return self.history or (4 if self.hide else 1)
