"""Experience: episodes that are not read from files but lived. Which world, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

from regard.validate import check_fields


@dataclass(frozen=True)
class Experience:
    """Where to act, and for how long."""

    env: str | None = None  # learn to act in this environment of gymnasium, in place of files: CartPole-v1 ...
    hide: tuple[int, ...] = ()  # numbers of its observations that are not shown, counted from 0
    real_steps: int = 3000  # steps in the environment, all told
    memory: int | None = None  # observations that the policy looks at; 1 unless given, 4 where some are hidden

    def __post_init__(self) -> None:
        usual = {name: field.default for name, field in self.__dataclass_fields__.items()}
        lived = {name: self.env is not None or getattr(self, name) == usual[name] for name in usual}
        check_fields(self, **{name: (fine, "given together with --env") for name, fine in lived.items()})
        check_fields(
            self,
            real_steps=(100 <= self.real_steps <= 10**8, "at least 100, and at most 100,000,000"),
            memory=(self.memory is None or 1 <= self.memory <= 64, "1 to 64"),
        )

    @property
    def remembers(self) -> int:
        return self.memory or (4 if self.hide else 1)
